//! Which packages can run side by side, and which wait for which. Knows no file and no place in one.

use std::collections::HashMap;

use serde::Serialize;

use crate::document::Document;
use crate::limits::COLLISIONS_MAX;
use crate::order::Order;
use crate::overlap::lock_claims;
use crate::{bits::members, collide::Meeting};

/// How the packages of a document can be worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Packages that can run side by side, wave after wave, each in the order of the file.
    pub waves: Vec<Vec<String>>,
    /// One for each package, in the order of the file.
    pub steps: Vec<Step>,
    /// Pairs that no dependency orders, but whose locks collide.
    pub collisions: Vec<Collision>,
    /// How many collisions there are beyond those that are told.
    pub collisions_left_out: usize,
}

/// One package of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Step {
    pub package_id: String,
    /// From 1.
    pub wave: usize,
    pub priority: u8,
    /// How many locks the package takes.
    pub locks: usize,
    /// The packages that it depends on.
    pub depends_on: Vec<String>,
    /// The packages that it waits for because their locks collide.
    pub waits_for: Vec<String>,
}

/// Two packages that may not run side by side, although no dependency says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Collision {
    pub first: String,
    pub first_key: String,
    /// The one that waits.
    pub second: String,
    pub second_key: String,
}

/// Plans a document: a package runs in the first wave behind all that it waits for.
///
/// Of two packages whose locks collide the later in the file waits. Where dependencies put them the other way round
/// (the earlier one depends on something that comes behind the later one), the order of dependencies counts.
///
/// [`Document::parse`] refuses dependencies that lead nowhere or round in a circle. In a document that was changed
/// since, dependencies that lead nowhere are passed over, and if there is a circle, so are those on later packages.
pub fn plan(document: &Document) -> Plan {
    let order = order_of(document);
    let each = (0..order.len())
        .flat_map(|position| document.packages[order.sequence[position]].locks.iter().map(move |key| (position, key)));
    let claims = lock_claims(each);
    let mut meetings: Vec<Meeting> = Vec::new();
    let mut left_out = 0;
    let met = claims.meetings(&order, |meeting| {
        if meetings.len() < COLLISIONS_MAX {
            meetings.push(meeting);
        } else {
            left_out += 1;
        }
    });
    meetings.sort_by_key(|meeting| (order.sequence[meeting.later], order.sequence[meeting.earlier]));

    let mut wave = vec![0; order.len()];
    for position in 0..order.len() {
        let waits = order.before.row(position).iter().zip(met.row(position)).enumerate();
        let behind = waits.flat_map(|(index, (before, met))| members(index, before | met)).map(|other| wave[other]);
        wave[position] = behind.max().unwrap_or(0) + 1;
    }

    let mut steps: Vec<Step> = document
        .packages
        .iter()
        .enumerate()
        .map(|(number, package)| Step {
            package_id: package.package_id.clone(),
            wave: wave[order.position[number]],
            priority: document.settings(package).priority,
            locks: package.locks.iter().count(),
            depends_on: package.depends_on.clone(),
            waits_for: Vec::new(),
        })
        .collect();
    let collisions = meetings.iter().map(|meeting| {
        let [earlier, later] = [meeting.earlier, meeting.later].map(|position| order.sequence[position]);
        let key = claims.what(meeting.claim);
        let other = document.packages[earlier].locks.iter().find(|other| other.overlaps(key));
        let first = steps[earlier].package_id.clone();
        steps[later].waits_for.push(first.clone());
        Collision {
            first,
            first_key: other.unwrap_or(key).to_string(),
            second: steps[later].package_id.clone(),
            second_key: key.to_string(),
        }
    });
    let collisions = collisions.collect();
    let mut waves = vec![Vec::new(); wave.iter().copied().max().unwrap_or(0)];
    for step in &steps {
        waves[step.wave - 1].push(step.package_id.clone());
    }
    Plan { waves, steps, collisions, collisions_left_out: left_out }
}

fn order_of(document: &Document) -> Order {
    let numbers: HashMap<&str, usize> =
        document.packages.iter().enumerate().map(|(number, package)| (package.package_id.as_str(), number)).collect();
    let mut depends_on: Vec<Vec<usize>> = Vec::with_capacity(document.packages.len());
    for package in &document.packages {
        let mut targets: Vec<usize> =
            package.depends_on.iter().filter_map(|name| numbers.get(name.as_str()).copied()).collect();
        targets.sort_unstable();
        targets.dedup();
        depends_on.push(targets);
    }
    Order::of(&depends_on).unwrap_or_else(|| {
        for (number, targets) in depends_on.iter_mut().enumerate() {
            targets.retain(|target| *target < number);
        }
        Order::of(&depends_on).expect("dependencies on earlier packages alone form no circle")
    })
}
