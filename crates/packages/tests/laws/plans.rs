//! What a plan says.

use lockkeeper_packages::{Document, Plan, plan};

use crate::{document, package};

fn planned(packages: &[String]) -> Plan {
    plan(&Document::parse("x", &document(packages)).unwrap())
}

fn waves(plan: &Plan) -> Vec<String> {
    plan.waves.iter().map(|wave| wave.join(" ")).collect()
}

#[test]
fn a_package_runs_in_the_first_wave_behind_what_it_depends_on() {
    let plan = planned(&[
        package("late", "middle", "", "", ""),
        package("first", "", "", "", ""),
        package("middle", "first", "", "", ""),
        package("free", "", "", "", ""),
    ]);
    assert_eq!(waves(&plan), ["first free", "middle", "late"]);
    assert_eq!(plan.steps[0].depends_on, ["middle"]);
}

#[test]
fn of_two_packages_whose_locks_collide_the_later_in_the_file_waits() {
    let plan = planned(&[
        package("a", "", "src/**", "", ""),
        package("b", "", "src/x.py", "", ""),
        package("c", "", "web/x.ts", "", ""),
    ]);
    assert_eq!(waves(&plan), ["a c", "b"]);
    assert_eq!(plan.steps[1].waits_for, ["a"]);
    let collision = &plan.collisions[0];
    assert_eq!((collision.first.as_str(), collision.first_key.as_str()), ("a", "src/**"));
    assert_eq!((collision.second.as_str(), collision.second_key.as_str()), ("b", "src/x.py"));
    assert_eq!(plan.collisions.len(), 1);
}

#[test]
fn a_dependency_counts_before_the_order_of_the_file() {
    // By the file alone, x2 would wait for x1, x1 for x3 and x3 for x2.
    let plan =
        planned(&[package("x1", "x3", "a", "", ""), package("x2", "", "a, b", "", ""), package("x3", "", "b", "", "")]);
    assert_eq!(waves(&plan), ["x2", "x3", "x1"]);
}

#[test]
fn the_integration_package_collides_like_any_other() {
    let plan = planned(&[package("wp-integration", "", "a", "", ""), package("b", "", "a", "", "")]);
    assert_eq!(waves(&plan), ["wp-integration", "b"]);
}

#[test]
fn a_circle_that_came_into_a_document_later_is_planned_all_the_same() {
    let text = document(&[package("a", "", "", "", ""), package("b", "a", "", "", "")]);
    let mut document = Document::parse("x", &text).unwrap();
    document.packages[0].depends_on = vec!["b".to_owned(), "nobody".to_owned()];
    assert_eq!(waves(&plan(&document)), ["a", "b"]);
}

#[test]
fn a_plan_can_be_drawn() {
    let plan = planned(&[
        package("a", "", "'x\"y/**'", "", ""),
        package("end", "a", "", "", ""),
        package("c", "", "'x\"y/z'", "", ""),
    ]);
    let rows = plan.rows();
    assert_eq!(rows[0], ["1", "a", "5", "1", "", ""]);
    assert_eq!(rows[1], ["2", "end", "5", "0", "a", ""]);
    assert_eq!(rows[2], ["2", "c", "5", "1", "", "a"]);
    assert_eq!(Plan::COLUMNS.len(), rows[0].len());
    let dot = plan.to_dot();
    assert!(dot.starts_with("digraph packages {\n") && dot.ends_with("}\n"));
    assert!(dot.contains("  \"a\" -> \"end\";\n"), "{dot}");
    assert!(dot.contains("\"a\" -> \"c\" [style=dashed, color=red, label=\"x\\\"y/z\"];"), "{dot}");
    assert!(dot.contains("{ rank=same; \"end\"; \"c\"; }"), "{dot}");
    let mermaid = plan.to_mermaid();
    assert!(mermaid.starts_with("flowchart LR\n"));
    assert!(mermaid.contains("  subgraph w1 [\"wave 1\"]\n    p0[\"a\"]\n  end\n"), "{mermaid}");
    assert!(mermaid.contains("  p0 --> p1\n"), "a name that is a word of Mermaid's own is never bare: {mermaid}");
    assert!(mermaid.contains("  p0 -.->|\"x#34;y/z\"| p2\n"), "{mermaid}");
}
