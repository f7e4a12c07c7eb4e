//! Addresses of engines and of services: read or refused, and the password is repeated in neither case.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_client::Endpoint;

/// A word that is in no message of ours.
const SECRET: &str = "Zq7vXw9k";

fuzz_target!(|text: &str| {
    if text.contains(SECRET) {
        return;
    }
    // Wherever a password stands in a URL, it is this one.
    let url = match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (login, place))) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            format!("{scheme}://{user}:{SECRET}@{place}")
        }
        None => text.to_owned(),
    };
    let told = match lockkeeper_engine::place_of(&url) {
        // A folder may be called so.
        Ok(_) if url.starts_with("file:") => String::new(),
        Ok(place) => place,
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!told.contains(SECRET), "{url}: {told}");
    let endpoint = Endpoint::parse(text, Some(SECRET.to_owned()));
    assert!(!format!("{endpoint:?}").contains(SECRET), "{endpoint:?}");
});
