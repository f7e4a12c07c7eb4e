//! Addresses of engines and of services: read or refused, and the password is repeated in neither case.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_client::Endpoint;

/// A word that is in no message of ours.
const SECRET: &str = "Zq7vXw9k";

fuzz_target!(|text: &str| {
    // Wherever a password stands in a URL, it is this one.
    let url = match text.split_once('@') {
        Some((before, rest)) => match before.rsplit_once(':') {
            Some((user, _)) => format!("{user}:{SECRET}@{rest}"),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    };
    let repeats_by_itself = url.matches(SECRET).count() > 1 || !url.contains("://") || url.starts_with("file:");
    let told = match lockkeeper_engine::place_of(&url) {
        Ok(place) => place,
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(repeats_by_itself || !told.contains(SECRET), "{told}");
    let endpoint = Endpoint::parse(text, Some(SECRET.to_owned()));
    assert!(text.contains(SECRET) || !format!("{endpoint:?}").contains(SECRET), "{endpoint:?}");
});
