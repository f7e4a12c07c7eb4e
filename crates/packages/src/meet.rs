//! Whether two globs take a common path that no third one takes away: a search over all paths at once, exact for
//! every form of glob. Gives a path as the proof.

use std::collections::{HashMap, HashSet};

use crate::glob::{Glob, Token};

/// What may still be spent on searching; shared by all searches for one document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps(u64);

impl Steps {
    pub(crate) fn unbounded() -> Steps {
        Steps(u64::MAX)
    }

    pub(crate) fn new(steps: u64) -> Steps {
        Steps(steps)
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), Exhausted> {
        self.0 = self.0.checked_sub(steps as u64).ok_or(Exhausted)?;
        Ok(())
    }
}

/// What a reading costs, compared with a look at the ends of two globs.
const READING_STEPS: usize = 8;

/// The search would take too long. Nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// How far a path has been read by both globs, and by all that take paths away.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Reading {
    one: u32,
    other: u32,
    /// The number of a set of positions in the globs that take away.
    denied: u32,
    /// Whether a part of the path begins here, which can't be empty.
    fresh: bool,
}

/// A path that both take and none of `denied` takes, if there is one.
pub(crate) fn common_path(
    one: &Glob,
    other: &Glob,
    denied: &[&Glob],
    steps: &mut Steps,
) -> Result<Option<String>, Exhausted> {
    steps.spend(1)?;
    if one.is_apart(other) {
        return Ok(None);
    }
    let denied: Vec<&Glob> =
        denied.iter().copied().filter(|glob| !glob.is_apart(one) && !glob.is_apart(other)).collect();
    let spare = spare_letter(&[&[one, other][..], &denied].concat());
    let mut search = Search { one, other, denied, spare, sets: Vec::new(), numbers: HashMap::new() };
    search.run(steps)
}

struct Search<'g> {
    one: &'g Glob,
    other: &'g Glob,
    denied: Vec<&'g Glob>,
    /// A letter that none of the globs names: it stands for all of them.
    spare: char,
    /// Sets of positions, as (glob, position), and their numbers.
    sets: Vec<Vec<(usize, usize)>>,
    numbers: HashMap<Vec<(usize, usize)>, u32>,
}

impl Search<'_> {
    fn run(&mut self, steps: &mut Steps) -> Result<Option<String>, Exhausted> {
        let start = (0..self.denied.len()).map(|glob| (glob, vec![0])).collect();
        let start = Reading { one: 0, other: 0, denied: self.number(start), fresh: true };
        // Each reading with the one that it came from and the letter between them.
        let mut readings: Vec<(Reading, usize, Option<char>)> = vec![(start, 0, None)];
        let mut seen = Seen::new(self);
        seen.insert(start);
        let mut letters = Vec::new();
        let mut index = 0;
        while let Some((reading, ..)) = readings.get(index).copied() {
            let set = self.sets[reading.denied as usize].len();
            steps.spend(READING_STEPS * (1 + set))?;
            if self.is_found(reading) {
                return Ok(Some(path_to(&readings, index)));
            }
            let mut add = |next: Reading, letter: Option<char>| {
                if seen.insert(next) {
                    readings.push((next, index, letter));
                }
            };
            if let Some(one) = self.one.skip(reading.one as usize) {
                add(Reading { one: one as u32, ..reading }, None);
            }
            if let Some(other) = self.other.skip(reading.other as usize) {
                add(Reading { other: other as u32, ..reading }, None);
            }
            self.letters(reading, &mut letters);
            for letter in letters.iter().copied() {
                if letter == '/' && reading.fresh {
                    continue;
                }
                let denied = self.deny_step(reading.denied, letter);
                for one in self.one.step(reading.one as usize, letter).into_iter().flatten() {
                    for other in self.other.step(reading.other as usize, letter).into_iter().flatten() {
                        let (one, other) = (one as u32, other as u32);
                        add(Reading { one, other, denied, fresh: letter == '/' }, Some(letter));
                    }
                }
            }
            index += 1;
        }
        Ok(None)
    }

    fn is_found(&self, reading: Reading) -> bool {
        let ends = |glob: &Glob, position: usize| position == glob.tokens().len();
        !reading.fresh
            && ends(self.one, reading.one as usize)
            && ends(self.other, reading.other as usize)
            && !self.sets[reading.denied as usize].iter().any(|(glob, position)| ends(self.denied[*glob], *position))
    }

    /// The letters that can make a difference here.
    fn letters(&self, reading: Reading, letters: &mut Vec<char>) {
        letters.clear();
        let tokens = (self.one.tokens().get(reading.one as usize), self.other.tokens().get(reading.other as usize));
        match tokens {
            (None, _) | (_, None) => {}
            (Some(Token::Char(c)), _) | (_, Some(Token::Char(c))) => letters.push(*c),
            (Some(_), Some(_)) => {
                let set = &self.sets[reading.denied as usize];
                let named =
                    set.iter().filter_map(|(glob, position)| match self.denied[*glob].tokens().get(*position) {
                        Some(Token::Char(c)) => Some(*c),
                        _ => None,
                    });
                letters.extend(named.chain([self.spare, '/']));
                letters.sort_unstable();
                letters.dedup();
            }
        }
    }

    fn deny_step(&mut self, set: u32, letter: char) -> u32 {
        if self.denied.is_empty() {
            return set;
        }
        let mut next: Vec<(usize, Vec<usize>)> = Vec::new();
        for (glob, position) in &self.sets[set as usize] {
            let steps = self.denied[*glob].step(*position, letter).into_iter().flatten();
            match next.last_mut().filter(|(last, _)| last == glob) {
                Some((_, positions)) => positions.extend(steps),
                None => next.push((*glob, steps.collect())),
            }
        }
        self.number(next)
    }

    fn number(&mut self, mut globs: Vec<(usize, Vec<usize>)>) -> u32 {
        let mut set = Vec::new();
        for (glob, positions) in &mut globs {
            self.denied[*glob].close(positions);
            set.extend(positions.iter().map(|position| (*glob, *position)));
        }
        if let Some(number) = self.numbers.get(&set) {
            return *number;
        }
        let number = self.sets.len() as u32;
        self.sets.push(set.clone());
        self.numbers.insert(set, number);
        number
    }
}

/// Readings that were met. Without anything that takes away they are few and dense.
enum Seen {
    Dense { bits: Vec<u64>, row: usize },
    Sparse(HashSet<Reading>),
}

impl Seen {
    fn new(search: &Search<'_>) -> Seen {
        if !search.denied.is_empty() {
            return Seen::Sparse(HashSet::new());
        }
        let row = search.other.tokens().len() + 1;
        let size = 2 * row * (search.one.tokens().len() + 1);
        Seen::Dense { bits: vec![0; size.div_ceil(64)], row }
    }

    /// Whether it is new.
    fn insert(&mut self, reading: Reading) -> bool {
        match self {
            Seen::Dense { bits, row } => {
                let at = 2 * (reading.one as usize * *row + reading.other as usize) + usize::from(reading.fresh);
                let (word, bit) = (&mut bits[at / 64], 1 << (at % 64));
                let new = *word & bit == 0;
                *word |= bit;
                new
            }
            Seen::Sparse(seen) => seen.insert(reading),
        }
    }
}

fn path_to(readings: &[(Reading, usize, Option<char>)], mut index: usize) -> String {
    let mut letters = Vec::new();
    while index > 0 {
        let (_, from, letter) = readings[index];
        letters.extend(letter);
        index = from;
    }
    letters.iter().rev().collect()
}

fn spare_letter(globs: &[&Glob]) -> char {
    let named = |c: char| globs.iter().any(|glob| glob.as_str().contains(c));
    let plain = ('a'..='z').rev().cycle().skip(2).take(26).chain('0'..='9').chain('A'..='Z');
    // A glob has at most a thousand letters, and far more exist.
    plain.chain('\u{4e00}'..='\u{9fff}').find(|c| !named(*c)).unwrap_or('\u{10fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(one: &str, other: &str, denied: &[&str]) -> Option<String> {
        let glob = |text: &str| Glob::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let denied: Vec<Glob> = denied.iter().map(|text| glob(text)).collect();
        let denied: Vec<&Glob> = denied.iter().collect();
        let (one, other) = (glob(one), glob(other));
        let found = common_path(&one, &other, &denied, &mut Steps::unbounded()).unwrap();
        let back = common_path(&other, &one, &denied, &mut Steps::unbounded()).unwrap();
        assert_eq!(found.is_some(), back.is_some(), "the order does not matter");
        if let Some(path) = &found {
            assert!(one.matches(path) && other.matches(path), "{path}");
            assert!(!denied.iter().any(|glob| glob.matches(path)), "{path}");
        }
        found
    }

    #[test]
    fn globs_meet_when_a_path_is_in_both() {
        let table = [
            ("src/api/**", "src/api/users.py", true),
            ("src/api/**", "src/web/**", false),
            ("src/api/**", "src/**", true),
            ("src/*.py", "src/a.py", true),
            ("src/*.py", "src/*.rs", false),
            ("src/*.py", "src/x/*.py", false),
            ("src/*.py", "**/*.md", false),
            ("**/*.md", "docs/**", true),
            ("**/*.md", "docs/*.rs", false),
            ("**/*.md", "README.md", true),
            ("src/a*", "src/*b", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/*/c", false),
            ("**/test/**", "src/**/fixtures/*", true),
            ("src/a?c", "src/ab*", true),
            ("src/api", "src/api/**", false),
            ("*", "*/a", false),
        ];
        for (one, other, expected) in table {
            assert_eq!(common(one, other, &[]).is_some(), expected, "{one} {other}");
        }
    }

    #[test]
    fn what_is_denied_counts_only_when_it_covers_all_of_the_overlap() {
        assert_eq!(common("src/**", "src/api/**", &["src/api/**"]), None);
        assert_eq!(common("src/**", "**/*.md", &["src/**/*.md"]), None);
        assert_eq!(common("src/**", "src/a.py", &["src/*.py"]), None);
        assert_eq!(common("src/**", "src/api/*", &["src/api/a*", "src/api/?", "src/api/??*"]), None);
        assert!(common("src/**", "src/api/**", &["src/api/*"]).is_some(), "deeper paths are left");
        assert!(common("src/**", "src/api/**", &["src/api/v1/**"]).is_some());
        assert!(common("*", "*", &["?"]).is_some());
    }

    #[test]
    fn a_search_ends_when_nothing_may_be_spent_any_more() {
        let glob = |text: &str| Glob::parse(text).unwrap();
        let (one, other) = (glob(&"*a".repeat(300)), glob(&"a*".repeat(300)));
        let deny = glob(&"*?a".repeat(30));
        assert_eq!(common_path(&one, &other, &[&deny], &mut Steps::new(10_000)), Err(Exhausted));
    }
}
