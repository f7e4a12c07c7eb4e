//! Commands in a folder of the repository: what is hinted at can be typed there.

use crate::house::{House, Said, said};

/// A command of a session, in the folder `src`.
fn in_src(house: &House, session: &str, arguments: &[&str]) -> Said {
    let mut command = house.command(session, arguments);
    said(command.current_dir(house.repository().join("src")).output().expect("the program runs"))
}

#[test]
fn a_folder_is_named_as_it_would_be_typed_there() {
    let house = House::new();
    let refused = in_src(&house, "a", &["lock", "acquire", "."]);
    assert!(refused.code == 2 && refused.err.contains("lock '**' for everything in it"), "{refused:?}");
    assert_eq!(in_src(&house, "a", &["lock", "acquire", "**"]).code, 0);
    assert_eq!(house.held(), ["a src/**"]);
    assert_eq!(in_src(&house, "b", &["lock", "acquire", "auth.rs"]).code, 5);
}

#[test]
fn whoever_names_a_file_from_the_top_of_the_repository_is_told() {
    let house = House::new();
    let told = in_src(&house, "a", &["lock", "acquire", "src/auth.rs:1-5"]);
    assert!(told.code == 0 && told.err.contains("src/src/auth.rs is not there"), "{told:?}");
    for plain in ["auth.rs", "new.rs", "../src/other.rs"] {
        let told = in_src(&house, "a", &["lock", "acquire", plain]);
        assert!(told.code == 0 && told.err.is_empty(), "{told:?}");
    }
}

#[test]
fn a_lock_and_a_room_are_named_so_that_the_hint_works_there() {
    let house = House::new();
    assert_eq!(in_src(&house, "a", &["lock", "acquire", "auth.rs:10-50"]).code, 0);
    let refused = in_src(&house, "a", &["lock", "release", "auth.rs:20-30"]);
    let id = refused.err.rsplit_once("by its id: ").expect("an id").1.trim().to_owned();
    assert_eq!(in_src(&house, "a", &["lock", "release", &id]).code, 0, "{refused:?}");
    assert_eq!(in_src(&house, "p", &["room", "open", "auth.rs"]).code, 0);
    let refused = in_src(&house, "q", &["room", "close", "auth.rs"]);
    let hinted = refused.err.rsplit_once("if that is you: lockkeeper ").expect("a command").1.trim().to_owned();
    let hinted: Vec<&str> = hinted.split(' ').collect();
    assert_eq!(in_src(&house, "q", &hinted).code, 0, "{refused:?}");
}
