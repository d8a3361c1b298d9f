/* An edge of SplitCompute in a program of yours: a language model that runs partly on a server and
 * partly here. An open edge answers the routes of `edge_client --serve`, which its own
 * GET /openapi.json describes: a method, a path, and a body of JSON give an answer, whole or event
 * by event. It prints nothing, and handles no signal.
 *
 * Any thread may call each function, and several at once, except where noted. Texts are UTF-8 and
 * end in a zero; a NULL handle is no edge or no answer, and never a crash. The thread that asks for
 * an answer's next event does its work, on a stack of 1 MiB at least.
 *
 * Link with -lsplitcompute (pkg-config splitcompute).
 */
#ifndef SPLITCOMPUTE_H
#define SPLITCOMPUTE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(SC_API)
#define SC_API __attribute__((visibility("default")))
#elif !defined(SC_API)
#define SC_API
#endif

/* NOLINTBEGIN(readability-identifier-naming): names of C */
typedef struct sc_edge sc_edge;
typedef struct sc_answer sc_answer;
/* NOLINTEND(readability-identifier-naming) */

/* The library's version, "0.1.0". */
SC_API const char* sc_version(void);

/* Opens an edge. `options` is a JSON object whose members are long flags of edge_client, with
 * values as texts, numbers or true:
 * {"server":"http://127.0.0.1:8080","cut":"auto","cache":"/tmp/weights"}. Returns at once, and
 * loads the model in the background. NULL for options that are wrong, unknown, or need a terminal
 * or a port, with one line in `error`, cut to `size` bytes with its zero. */
SC_API sc_edge* sc_open(const char* options, char* error, size_t size);

/* Ends every running answer, with the code `cancelled`, waits for the threads in it, and frees the
 * edge. Its answers have ended, and must still be freed. Call once, with no call of the edge's
 * running. */
SC_API void sc_close(sc_edge* edge);

/* Makes a request. `path` may have a query; `body` of `size` bytes may be NULL. Does nothing before
 * the answer's status or next event is asked for. NULL only without memory, an edge, a method or a
 * path. */
SC_API sc_answer* sc_ask(sc_edge* edge, const char* method, const char* path, const char* body,
                         size_t size);

/* Returns the HTTP status once it is known. Waits for the model too if the route needs it;
 * /split/status, /readyz and /openapi.json never wait. 0 for NULL. */
SC_API int sc_status(sc_answer* answer);

/* Returns the JSON of the next event of a stream, or the one body of any other answer, ended by a
 * zero; `size` (may be NULL) gets its bytes. NULL at the end. Valid until the next call for this
 * answer. A stream that breaks ends with an error object. */
SC_API const char* sc_next(sc_answer* answer, size_t* size);

/* Ends the answer soon, with the code `cancelled`, also for a thread that waits for it. */
SC_API void sc_cancel(sc_answer* answer);

/* Cancels the answer and frees it. Call once, with no other call for it running. */
SC_API void sc_free(sc_answer* answer);

#ifdef __cplusplus
}
#endif

#endif
