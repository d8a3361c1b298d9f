// cloud_server/routes/form: what browsers send, and one test for each way to be wrong.
#include <gtest/gtest.h>

#include "cloud_server/routes/form.h"
#include "http/message.h"

namespace split::cloud {

using http::HttpError;

namespace {

constexpr const char* kUrlencodedForm = "application/x-www-form-urlencoded; charset=UTF-8";
constexpr const char* kMultipart = "multipart/form-data; boundary=----WebKitFormBoundaryab12";

// `status code: message`, or "" when it is taken.
std::string refusal(std::string_view type, std::string_view body) {
  try {
    parse_form(type, body);
  } catch (const HttpError& error) {
    return cat(error.status, " ", error.code, ": ", error.message);
  }
  return "";
}
std::string form_refusal(std::string_view type, std::string_view body) {
  const std::string text = refusal(type, body), prefix = "400 invalid_form: the form: ";
  EXPECT_TRUE(text.starts_with(prefix)) << text;
  return text.substr(std::min(prefix.size(), text.size()));
}

TEST(Form, ReadsWhatJQuerySends) {
  EXPECT_EQ(parse_form(kUrlencodedForm, "offline_layers=3&input_text=caf%C3%A9+%26+%3D%0D%0Atea"),
            (FormFields{{"offline_layers", "3"}, {"input_text", "caf\xc3\xa9 & =\r\ntea"}}));
  EXPECT_EQ(parse_form("APPLICATION/x-www-form-urlencoded", "a&&b="),
            (FormFields{{"a", ""}, {"b", ""}}));
  EXPECT_EQ(parse_form(kUrlencodedForm, ""), FormFields{});
}

TEST(Form, ReadsWhatFormDataSends) {
  const std::string body =
      "------WebKitFormBoundaryab12\r\nContent-Disposition: form-data; name=\"input_text\"\r\n\r\n"
      "two\r\nlines -- --\r\n"
      "------WebKitFormBoundaryab12\r\ncontent-disposition:form-data;name=offline_layers\r\n"
      "Content-Type: text/plain\r\n\r\n\r\n"
      "------WebKitFormBoundaryab12--\r\n";
  const FormFields expected{{"input_text", "two\r\nlines -- --"}, {"offline_layers", ""}};
  EXPECT_EQ(parse_form(kMultipart, body), expected);
  EXPECT_EQ(
      parse_form("multipart/form-data; charset=x; boundary=\"----WebKitFormBoundaryab12\"", body),
      expected);
  EXPECT_EQ(parse_form(kMultipart, "------WebKitFormBoundaryab12--\r\n"), FormFields{});
}

TEST(Form, RefusesOtherTypesAndSizes) {
  const std::string type =
      "415 unsupported_media_type: expected application/x-www-form-urlencoded "
      "or multipart/form-data";
  EXPECT_EQ(refusal("", "a=1"), type);
  EXPECT_EQ(refusal("application/json", "{}"), type);
  EXPECT_EQ(refusal("multipart/mixed; boundary=x", "--x--"), type);
  EXPECT_EQ(refusal(kUrlencodedForm, "a=" + std::string(1 << 20, 'x')),
            "413 form_too_large: the form: expected at most 1048576 bytes");
}

TEST(Form, RefusesBadEscapes) {
  for (const char* body : {"a=%", "a=%4", "a=%zz", "%z=1"}) {
    EXPECT_EQ(form_refusal(kUrlencodedForm, body), "a broken escape") << body;
  }
  EXPECT_EQ(form_refusal(kUrlencodedForm, "a=1&b=2&a=3"), "a field is there twice");
  std::string many;
  for (int i = 0; i < 33; ++i) many += cat("f", i, "=&");
  EXPECT_EQ(form_refusal(kUrlencodedForm, many), "expected at most 32 fields");
}

TEST(Form, RefusesBadParts) {
  const std::string head = "Content-Disposition: form-data; name=\"a\"\r\n";
  const auto refused = [](const std::string& body) {
    return form_refusal("multipart/form-data; boundary=b", body);
  };
  EXPECT_EQ(refusal("multipart/form-data; boundary=b", "--b\r\n" + head + "\r\n1\r\n--b--"), "");
  EXPECT_EQ(refused(""), "does not begin with its boundary");
  EXPECT_EQ(refused("x--b--"), "does not begin with its boundary");
  EXPECT_EQ(refused("--b"), "a boundary's line does not end");
  EXPECT_EQ(refused("--bb\r\n"), "a boundary's line does not end");
  EXPECT_EQ(refused("--b\r\n"), "a part's head is over 1024 bytes or not there");
  EXPECT_EQ(refused("--b\r\n" + head + "X: " + std::string(1024, 'x') + "\r\n\r\n1\r\n--b--"),
            "a part's head is over 1024 bytes or not there");
  EXPECT_EQ(refused("--b\r\n" + head + "\r\n1"), "a part does not end");
  EXPECT_EQ(refused("--b\r\n" + head + "\r\n1\r\n--b"), "a boundary's line does not end");
  EXPECT_EQ(refused("--b\r\n" + head + "\r\n1\r\n--b--x"), "bytes after its end");
  EXPECT_EQ(refused("--b\r\nno colon\r\n\r\n1\r\n--b--"), "a part's header line has no colon");
  EXPECT_EQ(refused("--b\r\nA: b\r\n\r\n1\r\n--b--"), "a part has no name");
  EXPECT_EQ(refused("--b\r\n\r\n\r\n1\r\n--b--"), "a part has no name");
  EXPECT_EQ(refused("--b\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--b--"),
            "expected a part of form-data");
  EXPECT_EQ(refused("--b\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b--"),
            "expected one name for each part");
  EXPECT_EQ(refused("--b\r\n" + head + head + "\r\n1\r\n--b--"), "expected one name for each part");
  EXPECT_EQ(
      refused(
          "--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"x\"\r\n\r\n1\r\n--b--"),
      "a file, expected fields");
  EXPECT_EQ(refused("--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1\r\n--b--"),
            "name: a quote does not end");
  EXPECT_EQ(refused("--b\r\nContent-Disposition: form-data; name=\"a\\\"b\"\r\n\r\n1\r\n--b--"),
            "name: unexpected quotes");
  const std::string part = "--b\r\n" + head + "\r\n1\r\n";
  EXPECT_EQ(refused(part + part + "--b--"), "a field is there twice");
}

TEST(Form, RefusesBadBoundaries) {
  EXPECT_EQ(form_refusal("multipart/form-data", "--b--"), "multipart/form-data without a boundary");
  EXPECT_EQ(form_refusal("multipart/form-data; boundary=", "--"),
            "expected a boundary of 1 to 70 characters");
  const std::string long_one(71, 'b');
  EXPECT_EQ(form_refusal("multipart/form-data; boundary=" + long_one, "--" + long_one + "--"),
            "expected a boundary of 1 to 70 characters");
  EXPECT_EQ(form_refusal("multipart/form-data; boundary=\"b", "--b--"),
            "boundary: a quote does not end");
}

}  // namespace
}  // namespace split::cloud
