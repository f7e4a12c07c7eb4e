//! Which package comes before which: the order of dependencies, what can be reached, and circles. Knows numbers only.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

use crate::bits::BitMatrix;

/// An order in which every package comes after all that it depends on; otherwise that of the file.
#[derive(Debug)]
pub(crate) struct Order {
    /// Packages, first to last.
    pub sequence: Vec<usize>,
    /// Where a package stands in the sequence.
    pub position: Vec<usize>,
    /// For a position, the positions of all that must be finished before, directly or through others.
    pub before: BitMatrix,
}

impl Order {
    /// None if the dependencies form a circle.
    pub(crate) fn of(depends_on: &[Vec<usize>]) -> Option<Order> {
        let size = depends_on.len();
        let mut waiting: Vec<usize> = depends_on.iter().map(Vec::len).collect();
        let dependents = reversed(depends_on);
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..size).filter(|package| waiting[*package] == 0).map(Reverse).collect();
        let mut order = Order { sequence: Vec::new(), position: vec![0; size], before: BitMatrix::new(size) };
        while let Some(Reverse(package)) = ready.pop() {
            let position = order.sequence.len();
            order.position[package] = position;
            order.sequence.push(package);
            for dependency in &depends_on[package] {
                let earlier = order.position[*dependency];
                order.before.merge(position, earlier);
                order.before.insert(position, earlier);
            }
            for dependent in &dependents[package] {
                waiting[*dependent] -= 1;
                if waiting[*dependent] == 0 {
                    ready.push(Reverse(*dependent));
                }
            }
        }
        (order.sequence.len() == size).then_some(order)
    }

    pub(crate) fn len(&self) -> usize {
        self.sequence.len()
    }

    /// Whether a dependency says which of two positions comes first.
    #[cfg(test)]
    pub(crate) fn decides(&self, one: usize, other: usize) -> bool {
        self.before.has(one.max(other), one.min(other))
    }
}

fn reversed(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut reversed = vec![Vec::new(); edges.len()];
    for (from, targets) in edges.iter().enumerate() {
        for to in targets {
            reversed[*to].push(from);
        }
    }
    reversed
}

/// One circle of each knot of packages that wait for each other; the first package of each is its first in the file.
pub(crate) fn circles(depends_on: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let knots = knots(depends_on);
    let mut told = HashSet::new();
    let firsts = (0..depends_on.len()).filter(|package| told.insert(knots[*package]));
    firsts.filter_map(|package| shortest_circle(depends_on, &knots, package)).collect()
}

/// For each package, the number of its strongly connected component (Tarjan's walk, without recursion).
fn knots(edges: &[Vec<usize>]) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    let size = edges.len();
    let (mut index, mut low, mut knot) = (vec![UNSEEN; size], vec![0; size], vec![UNSEEN; size]);
    let (mut open, mut count, mut knots) = (Vec::new(), 0, 0);
    for start in 0..size {
        if index[start] != UNSEEN {
            continue;
        }
        let mut walk = vec![(start, 0)];
        while let Some((package, next)) = walk.last_mut() {
            let package = *package;
            if *next == 0 {
                (index[package], low[package]) = (count, count);
                count += 1;
                open.push(package);
            }
            if let Some(target) = edges[package].get(*next) {
                *next += 1;
                if index[*target] == UNSEEN {
                    walk.push((*target, 0));
                } else if knot[*target] == UNSEEN {
                    low[package] = low[package].min(index[*target]);
                }
                continue;
            }
            walk.pop();
            if let Some((parent, _)) = walk.last() {
                low[*parent] = low[*parent].min(low[package]);
            }
            if low[package] == index[package] {
                while let Some(member) = open.pop() {
                    knot[member] = knots;
                    if member == package {
                        break;
                    }
                }
                knots += 1;
            }
        }
    }
    knot
}

fn shortest_circle(edges: &[Vec<usize>], knots: &[usize], start: usize) -> Option<Vec<usize>> {
    let mut came_from: HashMap<usize, usize> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(package) = queue.pop_front() {
        for target in edges[package].iter().filter(|target| knots[**target] == knots[start]) {
            if *target == start {
                let mut circle = vec![package];
                while let Some(previous) = came_from.get(&circle[circle.len() - 1]) {
                    circle.push(*previous);
                }
                circle.reverse();
                return Some(circle);
            }
            if let Entry::Vacant(place) = came_from.entry(*target) {
                place.insert(package);
                queue.push_back(*target);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_keeps_to_the_file_as_far_as_dependencies_allow() {
        let order = Order::of(&[vec![2], vec![], vec![], vec![0]]).unwrap();
        assert_eq!(order.sequence, [1, 2, 0, 3]);
        let at = |package: usize| order.position[package];
        assert!(order.decides(at(3), at(2)) && order.decides(at(0), at(2)), "directly and through others");
        assert!(!order.decides(at(1), at(3)));
    }

    #[test]
    fn every_knot_tells_one_circle() {
        assert_eq!(circles(&[vec![1], vec![], vec![1]]), Vec::<Vec<usize>>::new());
        assert_eq!(circles(&[vec![0]]), [[0]]);
        // 0 waits for a knot of 1 and 2, which leads to a knot of 3, 4 and 5.
        let edges = [vec![1], vec![2, 3], vec![1], vec![4], vec![5], vec![3]];
        assert_eq!(circles(&edges), [vec![1, 2], vec![3, 4, 5]]);
        assert!(Order::of(&edges).is_none());
    }
}
