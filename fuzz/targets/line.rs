//! Lines of the socket, down to the rules: whatever is asked, the answer is JSON with a known word, and never 500.
#![no_main]

mod desk;

use std::cell::RefCell;

use desk::Desk;
use libfuzzer_sys::fuzz_target;
use lockkeeper_server::service::{Caller, Input};
use lockkeeper_wire::frame::{Asked, Question};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::word::Word;

thread_local! {
    static DESK: RefCell<(u32, Desk)> = RefCell::new((0, Desk::open()));
}

fuzz_target!(|lines: &[u8]| {
    DESK.with_borrow_mut(|(asked, desk)| {
        for line in lines.split(|byte| *byte == b'\n').take(16) {
            ask(desk, line);
        }
        *asked += 1;
        if *asked % 5000 == 0 {
            *desk = Desk::open();
        }
    });
});

fn ask(desk: &Desk, line: &[u8]) {
    let in_full = serde_json::from_slice::<Question<'_>>(line).ok();
    let Ok(question) = Asked::read(line) else {
        assert!(in_full.is_none(), "what can be read is read");
        return;
    };
    match &in_full {
        Some(full) => {
            let body = full.body.map_or("", |body| body.get());
            assert_eq!((question.id, &question.op, question.body), (full.id, &full.op, body), "taken apart as it is read");
        }
        None => assert!(serde_json::from_str::<serde_json::Value>(question.body).is_err(), "no line, so no body"),
    }
    let Some(operation) = Operation::named(&question.op) else { return };
    if matches!(operation, Operation::Stop | Operation::Events | Operation::AttachSession) {
        return;
    }
    let body = question.body;
    let caller = Caller::local();
    let reply = desk.runtime.block_on(async {
        let asked = desk.service.call(operation, Input::Json(body), &caller);
        // A wait is given up, as a client that goes away would.
        tokio::time::timeout(std::time::Duration::from_millis(20), asked).await
    });
    let Ok(reply) = reply else { return };
    let answer: serde_json::Value = serde_json::from_slice(&reply.body).expect("an answer is JSON");
    if reply.status != 200 {
        let word = answer["error"].as_str().and_then(Word::parse).expect("a refusal has a word");
        assert!(word != Word::Internal && word.status() == reply.status, "{answer}");
    }
}
