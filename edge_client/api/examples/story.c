/* story SERVER: a story whose first word comes from the server and which goes on here once the
 * layers have come.  cc story.c $(pkg-config --cflags --libs splitcompute) -o story */
#include <splitcompute.h>
#include <stdio.h>
#include <string.h>

static void print_text(const char* event) { /* of \n, \" and \\ alone */
  const char* at = strstr(event, "\"text\":\"");
  for (at = at ? at + 8 : ""; *at != '\0' && *at != '"'; ++at) {
    const int escaped = *at == '\\';
    at += escaped;
    putchar(escaped && *at == 'n' ? '\n' : *at);
  }
  fflush(stdout);
}

static int runs_here(sc_edge* edge) {
  sc_answer* status = sc_ask(edge, "GET", "/split/status", NULL, 0);
  const char* text = sc_next(status, NULL);
  const int here = text && strstr(text, "\"runs\":\"here\"") && !strstr(text, "\"runs\":\"cloud\"");
  sc_free(status);
  return here;
}

int main(int count, char** arguments) {
  char options[512], error[256], failed = 0;
  const char body[] = "{\"prompt\":\"The king\",\"max_tokens\":400,\"temperature\":0,"
                      "\"ignore_eos\":true,\"stream\":true}";
  snprintf(options, sizeof options, "{\"server\":\"%s\",\"goal\":\"offload\",\"retry-for\":\"5\"}",
           count > 1 ? arguments[1] : "http://127.0.0.1:8080");
  sc_edge* edge = sc_open(options, error, sizeof error);
  if (edge == NULL) return fprintf(stderr, "%s\n", error), 2;
  sc_answer* answer = sc_ask(edge, "POST", "/v1/completions", body, strlen(body));
  for (const char *event, *told = NULL; !failed && (event = sc_next(answer, NULL)) != NULL;) {
    if (strstr(event, "\"error\"")) failed = (fprintf(stderr, "%s\n", event), 3);
    print_text(event);
    if (!told && runs_here(edge)) fputs(told = "\n[all layers are here: the server may stop]\n", stderr);
  }
  sc_free(answer);
  return sc_close(edge), failed;
}
