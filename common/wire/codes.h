// The error codes of routes (error.code in a refusal's JSON) that programs act on: the cloud throws
// them, an edge compares them, and tests play either.
#pragma once

namespace split::wire::codes {

// A session's rows do not match the request: the edge sends them again, or opens another one.
inline constexpr char kSessionUnknown[] = "session_unknown";
inline constexpr char kSessionConflict[] = "session_conflict";
inline constexpr char kPositionMismatch[] = "position_mismatch";  // "have": the rows to go on from
inline constexpr char kDepthMismatch[] = "depth_mismatch";        // "have": rows of the blocks
inline constexpr char kTooManySessions[] = "too_many_sessions";
inline constexpr char kModelMismatch[] = "model_mismatch";  // the name belongs to another model now
inline constexpr char kContextExceeded[] = "context_exceeded";
// Transient: common/http knows no wire, and writes these two itself.
inline constexpr char kBusy[] = "busy";
inline constexpr char kDamaged[] = "damaged";  // bytes changed on the way
inline constexpr char kLoading[] = "loading";
inline constexpr char kDraining[] = "draining";  // no new texts here: another server may take them
inline constexpr char kRowsGone[] =
    "rows_gone";  // a receipt's rows were evicted, and are others now
inline constexpr char kOverflow[] = "overflow";  // numbers beyond what the profile holds
inline constexpr char kNotFound[] = "not_found";
inline constexpr char kNotSupported[] = "not_supported";
inline constexpr char kCloudError[] = "cloud_error";
inline constexpr char kCloudUnavailable[] = "cloud_unavailable";

}  // namespace split::wire::codes
