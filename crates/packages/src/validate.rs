//! All checks of a document, one after the other. Each check is a file of its own; here is only their order.

use std::collections::HashMap;

use crate::document::Document;
use crate::draft::Draft;
use crate::order::{Order, circles};
use crate::overlap::{check_locks, check_scopes, read_scopes};
use crate::problem::{Check, Problems, Report, shortened};
use crate::tree::Tree;
use crate::{keys, shape};

/// Names of a circle that are told before the rest is only counted.
const CIRCLE_SHOWN_MAX: usize = 12;

/// Checks a document and tells all that is wrong with it, not only the first.
pub fn validate(file_name: &str, text: &str) -> Report {
    let mut problems = Problems::new(file_name);
    let Some(tree) = Tree::read(text, &mut problems) else {
        return problems.into_report(None);
    };
    shape::check(&tree, &mut problems);
    let draft = Draft::read(&tree);
    // With too many packages, the rest would take as long as somebody likes; that was told already.
    if draft.packages.len() <= crate::limits::PACKAGES_MAX {
        let order = check_order(&draft, &mut problems);
        let locks = keys::check(&draft, &mut problems);
        let scopes = read_scopes(&draft, &mut problems);
        if let Some(order) = order {
            check_scopes(&draft, &order, &scopes, &mut problems);
            check_locks(&draft, &order, &locks, &mut problems);
        }
    }
    let usable = !problems.any(|check| !check.is_overlap());
    let document = usable.then(|| {
        let document = serde_json::from_value::<Document>(tree.value(tree.root()));
        document.expect("what fits the schema fits the structs from which it is made")
    });
    problems.into_report(document)
}

/// None if the dependencies give no order; then nothing can be said of overlaps.
fn check_order(draft: &Draft<'_>, problems: &mut Problems) -> Option<Order> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut whole = true;
    for (number, id) in draft.packages.iter().enumerate().filter_map(|(number, package)| Some((number, package.id?))) {
        if let Some(first) = numbers.get(id.text) {
            whole = false;
            let line = draft.packages[*first].id.map_or(0, |id| id.place.line);
            let message = format!("the package id {} is taken already, in line {line}", shortened(id.text));
            problems.add(Check::DuplicateId, id.place, id.path.to_string(), id.text, message);
            continue;
        }
        numbers.insert(id.text, number);
    }
    let mut depends_on = Vec::with_capacity(draft.packages.len());
    for package in &draft.packages {
        let mut targets = Vec::with_capacity(package.depends_on.len());
        for entry in &package.depends_on {
            if let Some(target) = numbers.get(entry.text) {
                targets.push(*target);
                continue;
            }
            whole = false;
            let message = format!("there is no package '{}'", shortened(entry.text));
            problems.add(Check::DependsOn, entry.place, entry.path.to_string(), entry.text, message);
        }
        targets.sort_unstable();
        targets.dedup();
        depends_on.push(targets);
    }
    let order = Order::of(&depends_on);
    if order.is_none() {
        for circle in circles(&depends_on) {
            tell_circle(draft, &circle, problems);
        }
    }
    order.filter(|_| whole)
}

fn tell_circle(draft: &Draft<'_>, circle: &[usize], problems: &mut Problems) {
    let mut names: Vec<&str> = circle.iter().take(CIRCLE_SHOWN_MAX).map(|package| draft.name(*package)).collect();
    if circle.len() > CIRCLE_SHOWN_MAX {
        names.push("…");
    }
    names.push(draft.name(circle[0]));
    let next = draft.name(*circle.get(1).unwrap_or(&circle[0]));
    let waits = draft.packages[circle[0]].depends_on.iter().find(|entry| entry.text == next);
    let entry = waits.expect("a circle is made of dependencies");
    let message = match circle.len() {
        1 => format!("a package waits for itself: {}", names.join(" -> ")),
        count => format!("{count} packages wait for each other in a circle: {}", names.join(" -> ")),
    };
    problems
        .add(Check::Cycle, entry.place, entry.path.to_string(), entry.text, message)
        .hint("take one of these dependencies away");
}
