//! Which packages meet in what they claim, when no dependency orders them. Knows claims by their text alone; what it
//! means for two of them to overlap is the caller's.
//!
//! A thousand packages with twenty claims each have two hundred million pairs of claims. So equal claims are one, the
//! claims are sorted so that only those are compared of which one lies below the other, and packages are sets of bits.

use crate::bits::{BitMatrix, below, insert, members};
use crate::meet::Exhausted;
use crate::order::Order;

/// Something that packages claim: a lock, a glob.
#[derive(Debug)]
pub(crate) struct Claim<'c, T> {
    pub what: &'c T,
    /// What everything in it begins with.
    pub anchor: &'c str,
    /// Whether it reaches further than itself.
    pub reaches: bool,
    /// Positions of the packages that claim it, in the order.
    pub holders: Vec<usize>,
}

/// Two packages that meet, by their positions in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub earlier: usize,
    pub later: usize,
    /// The number of the later one's claim with which it was found.
    pub claim: usize,
}

/// Claims with their neighbours: those that they overlap.
#[derive(Debug)]
pub(crate) struct Claims<'c, T> {
    claims: Vec<Claim<'c, T>>,
    neighbours: Vec<Vec<u32>>,
}

impl<'c, T: Ord> Claims<'c, T> {
    /// Gathers equal claims; `each` gives everything that is claimed, and by whom.
    pub(crate) fn gather(
        each: impl Iterator<Item = (usize, &'c T)>,
        anchor: impl Fn(&'c T) -> (&'c str, bool),
        mut overlap: impl FnMut(&T, &T) -> Result<bool, Exhausted>,
    ) -> Result<Claims<'c, T>, Exhausted> {
        let mut all: Vec<(&str, &T, usize, bool)> = each
            .map(|(position, what)| {
                let (anchor, reaches) = anchor(what);
                (anchor, what, position, reaches)
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        let mut claims: Vec<Claim<'c, T>> = Vec::new();
        for (anchor, what, position, reaches) in all {
            match claims.last_mut().filter(|last| last.what == what) {
                Some(last) => last.holders.push(position),
                None => claims.push(Claim { what, anchor, reaches, holders: vec![position] }),
            }
        }
        let mut neighbours = vec![Vec::new(); claims.len()];
        for (upper, claim) in claims.iter().enumerate().filter(|(_, claim)| claim.reaches) {
            // Sorted by anchors: what lies below begins behind the first with the same anchor.
            let first = claims.partition_point(|other| other.anchor < claim.anchor);
            let inside = claims[first..].iter().take_while(|other| other.anchor.starts_with(claim.anchor));
            for (lower, other) in (first..).zip(inside) {
                let met_before = other.reaches && other.anchor == claim.anchor && lower <= upper;
                if lower != upper && !met_before && overlap(claim.what, other.what)? {
                    neighbours[upper].push(lower as u32);
                    neighbours[lower].push(upper as u32);
                }
            }
        }
        Ok(Claims { claims, neighbours })
    }

    pub(crate) fn what(&self, claim: usize) -> &'c T {
        self.claims[claim].what
    }

    /// Every pair of packages that no dependency orders and whose claims overlap, once; `each` hears of it.
    /// Also all of them as bits: for a position, the earlier positions that it meets.
    pub(crate) fn meetings(&self, order: &Order, mut each: impl FnMut(Meeting)) -> BitMatrix {
        let mut met = BitMatrix::new(order.len());
        let mut around = vec![0; order.len().div_ceil(64)];
        for (number, claim) in self.claims.iter().enumerate() {
            if claim.holders.len() == 1 && self.neighbours[number].is_empty() {
                continue;
            }
            around.fill(0);
            let others = self.neighbours[number].iter().map(|other| &self.claims[*other as usize]);
            for holder in others.chain([claim]).flat_map(|claim| &claim.holders) {
                insert(&mut around, *holder);
            }
            for later in &claim.holders {
                let before = order.before.row(*later);
                let row = met.row_mut(*later);
                let words = (later + 1).div_ceil(64);
                for index in 0..words {
                    let new = below(index, around[index] & !before[index] & !row[index], *later);
                    row[index] |= new;
                    members(index, new).for_each(|earlier| each(Meeting { earlier, later: *later, claim: number }));
                }
            }
        }
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meetings(depends_on: &[Vec<usize>], claims: &[(usize, &str)]) -> Vec<(usize, usize)> {
        let order = Order::of(depends_on).unwrap();
        let texts: Vec<(usize, String)> =
            claims.iter().map(|(package, text)| (order.position[*package], (*text).to_owned())).collect();
        let claims = Claims::gather(
            texts.iter().map(|(position, text)| (*position, text)),
            |text| text.strip_suffix('*').map_or((text, false), |stem| (stem, true)),
            |upper, lower| Ok(lower.starts_with(upper.trim_end_matches('*'))),
        );
        let mut found = Vec::new();
        claims.unwrap().meetings(&order, |meeting| {
            found.push((order.sequence[meeting.earlier], order.sequence[meeting.later]));
        });
        found.sort_unstable();
        found
    }

    #[test]
    fn equal_claims_meet_and_claims_that_reach_meet_what_is_below() {
        assert_eq!(meetings(&[vec![], vec![], vec![]], &[(0, "a"), (1, "a"), (2, "b")]), [(0, 1)]);
        assert_eq!(meetings(&[vec![], vec![], vec![]], &[(0, "a/*"), (1, "a/x"), (2, "b/*")]), [(0, 1)]);
        assert_eq!(
            meetings(&[vec![], vec![], vec![]], &[(0, "a/b/*"), (1, "a/*"), (2, "*")]),
            [(0, 1), (0, 2), (1, 2)]
        );
    }

    #[test]
    fn a_dependency_through_others_keeps_packages_apart() {
        assert_eq!(meetings(&[vec![], vec![0], vec![1]], &[(0, "a"), (2, "a")]), []);
        assert_eq!(meetings(&[vec![2], vec![], vec![]], &[(0, "a"), (2, "a"), (1, "a")]), [(1, 0), (1, 2)]);
    }
}
