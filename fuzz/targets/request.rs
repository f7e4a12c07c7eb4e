//! Bodies of requests: what is read can be written, and is read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_wire::request;

macro_rules! round_trip {
    ($bytes:expr, $($name:ident)*) => {$(
        if let Ok(body) = serde_json::from_slice::<request::$name>($bytes) {
            let text = serde_json::to_string(&body).expect("a body has a form");
            let again: request::$name = serde_json::from_str(&text).expect("its own form");
            assert_eq!(serde_json::to_string(&again).expect("a form"), text);
        }
    )*};
}

fuzz_target!(|bytes: &[u8]| {
    round_trip!(bytes, AcquireRequest ReleaseRequest RenewRequest ForceReleaseRequest CheckRequest ListRequest
        HistoryRequest AuditRequest EventsRequest SessionRequest RestoreRequest AttachRequest RoomRequest StatusRequest
        FeatureRequest FeatureEndRequest FeatureConflictsRequest FeaturePauseRequest FeatureResumeRequest
        FeatureCheckRequest PortsRequest PackagesRequest PolicyCheckRequest);
});
