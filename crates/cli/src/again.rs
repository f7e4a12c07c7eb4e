//! The next command, after a refusal: the same one with a wait, or with lines that are free.

use lockkeeper_wire::answer::Refused;

/// Waits that are suggested, in seconds.
const WAITS: [u64; 10] = [30, 60, 300, 900, 1800, 2700, 3600, 7200, 14_400, 28_800];

/// Commands that can be pasted as they are: made from what was typed, so that they mean the same here.
pub(crate) fn commands(refused: &Refused, keys: &[String]) -> Vec<String> {
    let typed: Vec<String> = std::env::args().collect();
    let mut found = Vec::new();
    if let ([key], Some(free)) = (keys, refused.free.first()) {
        let path = key.rsplit_once(':').map_or(key.as_str(), |(path, _)| path);
        let lines = crate::output::lines(Some(free.start_line), free.end_line);
        let other = format!("{path}:{lines}");
        found.push(joined(with_other(&typed, key, &other)));
    }
    found.push(joined(with_wait(&typed, wait_for(refused))));
    found
}

/// The command with this wait.
pub(crate) fn waiting(wait: &str) -> String {
    let typed: Vec<String> = std::env::args().collect();
    joined(with_wait(&typed, wait.to_owned()))
}

/// The command with another word in the place of one; `None`: that one does not stand by itself.
pub(crate) fn instead(word: &str, other: &str) -> Option<String> {
    let typed: Vec<String> = std::env::args().collect();
    own(&typed).iter().any(|typed| typed == word).then(|| joined(with_other(&typed, word, other)))
}

/// The command with one word more, before the one at this place.
pub(crate) fn with_word(typed: &[String], at: usize, word: &str) -> String {
    let (before, behind) = typed.split_at(at);
    joined(before.iter().cloned().chain([word.to_owned()]).chain(behind.iter().cloned()))
}

/// What stands behind `--` is another program's.
fn own(typed: &[String]) -> &[String] {
    typed.split(|word| word == "--").next().unwrap_or_default()
}

fn with_other(typed: &[String], word: &str, other: &str) -> impl Iterator<Item = String> {
    let behind = own(typed).len();
    typed
        .iter()
        .enumerate()
        .map(move |(at, typed)| (if at < behind && typed == word { other } else { typed }).to_owned())
}

/// The command with another wait, before whatever stands behind `--`.
fn with_wait(typed: &[String], wait: String) -> impl Iterator<Item = String> {
    let behind = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let (before, rest) = typed.split_at(behind);
    let mut words: Vec<String> = Vec::new();
    let mut given = before.iter();
    while let Some(word) = given.next() {
        if word == "--wait" {
            given.next();
        } else if !word.starts_with("--wait=") {
            words.push(word.clone());
        }
    }
    words.extend(["--wait".to_owned(), wait]);
    words.extend(rest.iter().cloned());
    words.into_iter()
}

/// Long enough for the locks that stand in the way to end by themselves.
fn wait_for(refused: &Refused) -> String {
    let longest =
        refused.conflicts.iter().filter_map(|conflict| conflict.expires_in_ms).max().unwrap_or(0).div_ceil(1000);
    let secs = WAITS.into_iter().find(|wait| *wait >= longest).unwrap_or(28_800);
    match secs {
        0..60 => format!("{secs}s"),
        60..3600 => format!("{}m", secs / 60),
        _ => format!("{}h", secs / 3600),
    }
}

fn joined(words: impl Iterator<Item = String>) -> String {
    let mut words = words.collect::<Vec<_>>();
    if let Some(program) = words.first_mut() {
        "lockkeeper".clone_into(program);
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    lockkeeper_core::text::shell_word(word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_put_before_the_command_that_is_run() {
        let typed = ["lockkeeper", "run", "a b", "--wait", "1s", "--", "make", "x"].map(str::to_owned);
        assert_eq!(joined(with_wait(&typed, "30s".to_owned())), "lockkeeper run 'a b' --wait 30s -- make x");
    }

    #[test]
    fn another_key_is_put_only_where_a_key_stands() {
        let typed = ["lockkeeper", "run", "f:3-1", "--", "wc", "f:3-1"].map(str::to_owned);
        assert_eq!(joined(with_other(&typed, "f:3-1", "f:1-3")), "lockkeeper run f:1-3 -- wc f:3-1");
    }

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("$(touch x)"), "'$(touch x)'");
        assert_eq!(quoted("src/auth.rs:1-5"), "src/auth.rs:1-5");
    }
}
