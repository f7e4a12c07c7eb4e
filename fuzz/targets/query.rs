//! Queries of HTTP, down to the rules: whatever is asked, the answer is JSON with a known word, and never 500.
#![no_main]

mod desk;

use std::cell::RefCell;

use axum::http::Uri;
use desk::Desk;
use libfuzzer_sys::fuzz_target;
use lockkeeper_server::service::{Caller, Input};
use lockkeeper_wire::operation::{Method, TABLE};
use lockkeeper_wire::word::Word;

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::open());
}

fuzz_target!(|input: (u8, &str)| {
    let (which, query) = input;
    let Ok(uri) = format!("/?{query}").parse::<Uri>() else { return };
    let asked: Vec<_> = TABLE.iter().filter(|row| row.method == Method::Get && !row.streams).collect();
    let operation = asked[usize::from(which) % asked.len()].operation;
    DESK.with_borrow_mut(|desk| {
        let caller = Caller::local();
        let reply = desk.runtime.block_on(desk.service.call(operation, Input::Query(&uri), &caller));
        let answer: serde_json::Value = serde_json::from_slice(&reply.body).expect("an answer is JSON");
        if reply.status != 200 {
            let word = answer["error"].as_str().and_then(Word::parse).expect("a refusal has a word");
            assert!(word != Word::Internal && word.status() == reply.status, "{answer}");
        }
    });
});
