//! Ports: one handful a session, for as long as it is heard.

use lockkeeper_core::command::Command;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::ports::{InvalidPorts, PortRules};
use lockkeeper_core::time::Millis;

use crate::house::{House, actor};

fn allocate(house: &mut House, session: &str, taken: &[u16]) -> Answer {
    house.tell(Command::AllocatePorts { actor: actor(session), taken: taken.to_vec() })
}

fn base(house: &mut House, session: &str, taken: &[u16]) -> u16 {
    match allocate(house, session, taken) {
        Answer::PortsAllocated { ports } => ports.base,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_session_has_its_own_ports_and_gets_the_same_again() {
    let mut house = House::new();
    assert_eq!(base(&mut house, "a", &[]), 10_000);
    assert_eq!(base(&mut house, "b", &[]), 10_100);
    assert_eq!(base(&mut house, "a", &[10_000, 10_003]), 10_000, "what listens there is its own");
    assert_eq!(base(&mut house, "c", &[10_203]), 10_300, "what something else listens on is passed over");
    assert!(matches!(
        house.tell(Command::ReleasePorts { actor: actor("a") }),
        Answer::PortsReleased { ports: Some(_) }
    ));
    assert!(matches!(house.tell(Command::ReleasePorts { actor: actor("a") }), Answer::PortsReleased { ports: None }));
    assert_eq!(base(&mut house, "d", &[]), 10_000);
}

#[test]
fn when_there_are_no_more_ports_it_is_said_so() {
    let mut house = House::new();
    house.rules.ports.sessions = 2;
    base(&mut house, "a", &[]);
    base(&mut house, "b", &[]);
    let refusal = house.refused(Command::AllocatePorts { actor: actor("c"), taken: Vec::new() });
    assert!(matches!(refusal, Refusal::NoPorts { used: 2, sessions: 2 }));
    assert_eq!(base(&mut house, "a", &[]), 10_000);
    assert!(matches!(allocate(&mut House::new(), "a", &(10_000..12_000).collect::<Vec<_>>()), Answer::Refused(_)));
}

#[test]
fn ports_live_as_long_as_their_session_is_heard() {
    let mut house = House::new();
    house.rules.ports.ttl = Millis(60_000);
    base(&mut house, "a", &[]);
    base(&mut house, "b", &[]);
    for _ in 0..5 {
        house.wait(30_000);
        house.beat("a");
    }
    assert_eq!(base(&mut house, "c", &[]), 10_100, "those of b came free");
    house.tell(Command::CloseSession { actor: actor("a") });
    assert_eq!(base(&mut house, "d", &[]), 10_000, "a closed session has none");
}

#[test]
fn ports_that_were_given_under_other_settings_are_not_given_twice() {
    let mut house = House::new();
    base(&mut house, "a", &[]);
    house.rules.ports = PortRules { base: 10_002, stride: 4, ..PortRules::default() };
    assert_eq!(base(&mut house, "b", &[]), 10_006);
}

#[test]
fn settings_that_leave_no_ports_are_refused() {
    let default = PortRules::default();
    assert_eq!(default.check(), Ok(default));
    assert_eq!(PortRules { base: 1023, ..default }.check(), Err(InvalidPorts::Base(1023)));
    assert_eq!(PortRules { stride: 3, ..default }.check(), Err(InvalidPorts::Stride(3)));
    assert_eq!(PortRules { sessions: 0, ..default }.check(), Err(InvalidPorts::Sessions));
    assert!(matches!(PortRules { base: 65_000, ..default }.check(), Err(InvalidPorts::Beyond { .. })));
    let last = PortRules { base: 65_532, sessions: 1, ..default };
    assert_eq!(last.check(), Ok(last));
}
