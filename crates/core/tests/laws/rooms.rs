//! Rooms: where a person works, agents keep out.

use lockkeeper_core::command::Command;
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, BusyReason, Refusal, Room};
use lockkeeper_core::time::Millis;

use crate::house::{House, actor, busy, wanting};

#[test]
fn whoever_opens_a_room_is_answered_though_it_is_closed_at_once() {
    let mut house = House::new();
    let key = Key::parse("x").unwrap();
    let opened = house.outcome(Command::OpenRoom { actor: actor("me"), key: key.clone(), busy: Millis(60_000) });
    house.tell(Command::CloseRoom { actor: actor("me"), key });
    assert!(matches!(house.state.answer(&opened), Some(Answer::RoomClosed { .. })));
}

#[test]
fn a_room_is_left_by_whoever_opened_it() {
    let mut house = House::new();
    let key = Key::parse("x").unwrap();
    house.tell(Command::OpenRoom { actor: actor("me"), key: key.clone(), busy: Millis(60_000) });
    let refusal = house.refused(Command::CloseRoom { actor: actor("agent"), key: key.clone() });
    assert!(matches!(refusal, Refusal::NotInRoom { .. }), "{refusal:?}");
    house.tell(Command::OpenRoom { actor: actor("agent"), key: key.clone(), busy: Millis(1_000) });
    house.wait(2_000);
    busy(house.acquire("agent", &["x"]));
    house.tell(Command::CloseRoom { actor: actor("me"), key });
    house.granted("agent", "x");
}

#[test]
fn whoever_closes_their_session_leaves_their_rooms() {
    let mut house = House::new();
    for (session, name) in [("me", "x"), ("me", "y"), ("other", "z")] {
        let key = Key::parse(name).unwrap();
        house.tell(Command::OpenRoom { actor: actor(session), key, busy: Millis(60_000) });
    }
    house.queue("agent", &["x"], 5);
    house.tell(Command::CloseSession { actor: actor("me") });
    assert_eq!(house.holders("x"), ["agent"]);
    house.granted("agent", "y");
    busy(house.acquire("agent", &["z"]));
}

#[test]
fn agents_keep_out_of_a_room_while_a_person_is_in() {
    let mut house = House::new();
    let key = Key::parse("src/a.rs").unwrap();
    house.tell(Command::OpenRoom { actor: actor("me"), key: key.clone(), busy: Millis(5000) });
    assert_eq!(busy(house.acquire("a", &["src/a.rs#1-5"])).reason, BusyReason::RoomBusy);
    assert_eq!(busy(house.acquire("a", &["src/**"])).reason, BusyReason::RoomBusy);
    house.granted("me", "src/a.rs#1-5");
    house.queue("b", &["src/a.rs#10-15"], 5);
    house.wait(5000);
    house.outcome(Command::Sweep);
    assert_eq!(house.holders("src/a.rs"), ["b", "me"]);
}

#[test]
fn the_quota_is_asked_before_the_room() {
    let mut house = House::new();
    let key = Key::parse("src/a.rs").unwrap();
    house.tell(Command::OpenRoom { actor: actor("me"), key, busy: Millis(60_000) });
    assert_eq!(busy(house.acquire("a", &["src/a.rs"])).reason, BusyReason::RoomBusy);
    house.rules.quota_limit = 1;
    house.granted("a", "x");
    let refusal = house.refused(Command::Acquire(wanting("a", &["src/a.rs"])));
    assert!(matches!(refusal, Refusal::RateLimited { .. }), "who has used its quota learns nothing else: {refusal:?}");
}

#[test]
fn a_room_has_the_same_id_for_everybody_and_for_ever() {
    for (key, id) in [("src/a.rs", "7e4e066108ddbb8e"), ("api:GET /v1/users", "df69609378b29b89")] {
        assert_eq!(Room::id(&Key::parse(key).unwrap()), id, "{key}");
    }
    assert_eq!(Room::id(&Key::parse("./src//a.rs").unwrap()), Room::id(&Key::parse("src/a.rs").unwrap()));
}
