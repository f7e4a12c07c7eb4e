//! The README's terminal session is what happens.

use crate::house::House;

/// Ids, tokens and times differ from run to run.
fn plain(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for line in text.lines() {
        let line: Vec<String> = line
            .split(' ')
            .map(|word| {
                let core = word.trim_matches(|c: char| "(),.".contains(c));
                let digits = core.len() >= 12 && core.bytes().all(|b| b.is_ascii_digit());
                if core.starts_with("lock-") {
                    word.replace(core, "ID")
                } else if digits {
                    word.replace(core, "N")
                } else {
                    word.to_owned()
                }
            })
            .collect();
        words.push(line.join(" "));
    }
    let text = words.join("\n");
    // "for 29 s more" depends on how fast the machine is.
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("for ") {
        out.push_str(&rest[..at + 4]);
        rest = &rest[at + 4..];
        if let Some(end) = rest.find(" s more")
            && rest[..end].bytes().all(|b| b.is_ascii_digit())
        {
            out.push('T');
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

/// A command of the session, split as a shell would.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ' ') if !word.is_empty() => words.push(std::mem::take(&mut word)),
            (None, ' ') => {}
            _ => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[test]
fn the_readmes_session_is_what_happens() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).expect("a README");
    let session =
        readme.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a console session");
    let house = House::new();
    let mut checked = 0;
    let mut lines = session.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((agent, command)) = line.split_once("$ ") else { panic!("not a command: {line}") };
        let mut expected = Vec::new();
        while let Some(next) = lines.next_if(|next| !next.contains("$ ")) {
            expected.push(next);
        }
        let mut arguments = words(command);
        assert_eq!(arguments.remove(0), "lockkeeper", "{line}");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = house.command(agent.trim(), &arguments);
        let said = crate::house::said(command.env("LOCKKEEPER_TABLES", "1").output().unwrap());
        let told = format!("{}{}", said.out, said.err);
        assert_eq!(plain(told.trim_end()), plain(&expected.join("\n")), "{line}");
        checked += 1;
    }
    assert!(checked >= 5, "a session of two agents");
}
