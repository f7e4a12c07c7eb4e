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

#[test]
fn with_separate_worktrees_a_file_of_another_one_is_outside() {
    let house = House::new();
    house.git(&["commit", "--allow-empty", "--quiet", "-m", "x"]);
    house.git(&["worktree", "add", "--quiet", "../other", "-b", "other"]);
    let other = house.repository().join("../other");
    let there = house.repository().join("src/auth.rs");
    let elsewhere = |separate: &str| {
        std::fs::write(other.join("lockkeeper.toml"), format!("worktrees = \"{separate}\"\n")).expect("written");
        let mut command = house.command("b", &["lock", "acquire", there.to_str().expect("a path")]);
        said(command.current_dir(&other).output().expect("the program runs"))
    };
    assert_eq!(house.say("a", &["lock", "acquire", "src/auth.rs"]).code, 0);
    assert_eq!(elsewhere("shared").code, 5);
    let refused = elsewhere("separate");
    assert!(refused.code == 2 && refused.err.contains("it is outside of"), "{refused:?}");
    // A space that has a name is one for all who name it.
    let shared = elsewhere("separate\"\nspace = \"team/app");
    assert_eq!(shared.code, 0, "{shared:?}");
}

#[test]
fn a_worktree_inside_another_one_has_the_same_files() {
    let house = House::new();
    house.git(&["commit", "--allow-empty", "--quiet", "-m", "x"]);
    house.git(&["worktree", "add", "--quiet", ".claude/worktrees/x", "-b", "x"]);
    assert_eq!(house.say("a", &["lock", "acquire", ".claude/worktrees/x/src/auth.rs"]).code, 0);
    assert_eq!(house.held(), ["a src/auth.rs"]);
    assert_eq!(house.say("b", &["lock", "acquire", ".claude/worktrees/x/src/**"]).code, 5);
    assert_eq!(house.say("b", &["lock", "acquire", ".claude/worktrees/x/**"]).code, 5);
    let from_inside = |arguments: &[&str]| {
        let mut command = house.command("b", arguments);
        said(command.current_dir(house.repository().join(".claude/worktrees/x")).output().expect("the program runs"))
    };
    assert_eq!(from_inside(&["lock", "acquire", "src/auth.rs"]).code, 5);
    assert_eq!(from_inside(&["lock", "acquire", "../../../src/auth.rs"]).code, 5);
    std::fs::write(house.repository().join("lockkeeper.toml"), "worktrees = \"separate\"\n").expect("written");
    let refused = house.say("a", &["lock", "acquire", ".claude/worktrees/x/src/auth.rs"]);
    assert!(refused.code == 2 && refused.err.contains("it is outside of"), "{refused:?}");
}

#[test]
fn a_number_behind_a_prefix_is_no_line_of_a_file() {
    let house = House::new();
    for (key, why) in
        [("env:5432", "ports allocate"), ("api:10-20", "api:GET"), ("db:10", "db:"), ("env::5432", "ports allocate")]
    {
        let refused = house.say("a", &["lock", "acquire", key]);
        assert!(refused.code == 2 && refused.err.contains(why), "{key}: {refused:?}");
    }
    assert_eq!(house.say("a", &["lock", "acquire", "flag:2024"]).code, 0);
    assert_eq!(house.say("b", &["lock", "acquire", "flag:*"]).code, 5);
    assert_eq!(house.held(), ["a flag:2024"]);
    // A file that is called so has lines.
    assert_eq!(house.say("b", &["lock", "acquire", "./flag:20-24"]).code, 0);
    let refused = house.say("c", &["lock", "acquire", "./flag:24-30", "--session", "c"]);
    assert!(refused.err.contains("lock acquire ./flag:"), "the hint names the file: {refused:?}");
}

#[test]
fn a_file_that_is_called_like_a_logical_key_is_not_taken_for_it() {
    let house = House::new();
    for name in ["flag:billing", "flag:10"] {
        std::fs::write(house.repository().join(name), "x\n").expect("a file");
    }
    let absolute = house.repository().join("flag:billing").display().to_string();
    for path in [absolute.as_str(), "../flag:billing", "../flag:billing/x", "../flag:billing/**", "../flag:10"] {
        let refused = in_src(&house, "a", &["lock", "acquire", path]);
        assert!(refused.code == 2 && refused.err.starts_with("invalid_path: "), "{path}: {refused:?}");
        assert!(refused.err.contains("that of a logical key") && refused.err.contains("'../**'"), "{refused:?}");
    }
    let refused = house.say("a", &["lock", "acquire", "./flag:billing"]);
    assert!(refused.code == 2 && refused.err.contains("'**'"), "{refused:?}");
    assert!(house.held().is_empty());
    // The key itself is one wherever it is typed, and whatever else is called so.
    let told = in_src(&house, "a", &["lock", "acquire", "flag:billing"]);
    assert!(told.code == 0 && told.err.is_empty(), "{told:?}");
    assert_eq!(in_src(&house, "b", &["lock", "acquire", "../**"]).code, 0, "no key is a file");
}

/// A command of a session, in the folder around the repository, which is in none itself.
fn around(house: &House, session: &str, arguments: &[&str]) -> Said {
    said(house.command(session, arguments).current_dir(house.path()).output().expect("the program runs"))
}

#[test]
fn from_outside_of_a_repository_a_file_in_it_is_not_locked_where_nobody_would_see_it() {
    let house = House::new();
    let top = house.repository().canonicalize().expect("a folder").display().to_string();
    for (typed, there) in [
        ("repository/src/auth.rs:10-50", "src/auth.rs:10-50"),
        ("./repository/src/new.rs", "src/new.rs"),
        ("repository/src/**", "src/**"),
        ("repository/**", "**"),
    ] {
        let refused = around(&house, "a", &["lock", "acquire", typed, "-m", "as in a/b"]);
        assert!(refused.code == 2 && refused.err.starts_with("invalid_path: "), "{refused:?}");
        assert!(refused.err.contains(&format!("it is in the repository {top}, where nobody would see")), "{refused:?}");
        let hint = format!("Hint: cd {top}, and write {there}\n");
        assert!(refused.err.ends_with(&hint), "{refused:?}");
    }
    assert_eq!(around(&house, "a", &["lock", "check", "repository/src/auth.rs"]).code, 2);
    for own in ["plain.rs", "folder/plain.rs", "flag:x"] {
        assert_eq!(around(&house, "a", &["lock", "acquire", own]).code, 0, "{own}");
    }
    std::fs::write(house.path().join("lockkeeper.toml"), "").expect("written");
    assert_eq!(around(&house, "a", &["lock", "acquire", "repository/src/auth.rs"]).code, 0, "it is one by choice");
}

#[test]
fn a_repository_inside_another_one_is_a_part_of_it() {
    let house = House::new();
    house.git(&["init", "--quiet", "vendor/library"]);
    let told = house.say("a", &["lock", "acquire", "vendor/library/a.rs"]);
    assert!(told.code == 0 && told.err.contains("vendor/library is a repository of its own"), "{told:?}");
    assert_eq!(house.held(), ["a vendor/library/a.rs"]);
    assert_eq!(house.say("a", &["lock", "acquire", "vendor/other.rs"]).err, "", "nothing is said where there is none");
}

/// Anybody can commit such a link; git does not follow it either.
#[test]
fn what_says_what_to_ignore_is_no_link_to_something_without_an_end() {
    let house = House::new();
    std::os::unix::fs::symlink("/proc/self/pagemap", house.repository().join(".gitignore")).expect("a link");
    let refused = house.say("p", &["room", "watch"]);
    assert!(refused.code != 0 && refused.err.contains("is no plain file"), "{refused:?}");
}
