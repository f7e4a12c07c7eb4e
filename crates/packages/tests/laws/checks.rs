//! Each check, right and wrong, with the place that it tells.

use lockkeeper_packages::{Check, Document};

use crate::{HEAD, document, expect, only, package, report};

fn one() -> String {
    package("a", "", "src/a.py", "", "src/**")
}

fn valid(text: &str) {
    assert_eq!(report(text).problems, []);
}

#[test]
fn a_right_document_has_no_problems_and_its_defaults() {
    let text = document(&[one()]);
    valid(&text);
    let document = Document::parse("x", &text).unwrap();
    let settings = document.settings(&document.packages[0]);
    assert_eq!((settings.priority, settings.lock_ttl_minutes, settings.timeout_minutes), (5, 120, 60));
    assert_eq!((settings.retry_budget, settings.min_trust_level), (1, 2));
    assert_eq!(settings.verification_tier_required, "A");
    assert_eq!(document.package("a").unwrap().locks.files[0].as_str(), "src/a.py");
    assert!(document.package("b").is_none());
}

#[test]
fn a_packages_own_word_counts_before_the_default() {
    let text = document(&[one()])
        .replace("packages:", "defaults: {priority: 2, lock_ttl_minutes: 7}\npackages:")
        .replace("task_type: work", "task_type: work\n    priority: 9\n    retry_budget: 3");
    let document = Document::parse("x", &text).unwrap();
    let settings = document.settings(&document.packages[0]);
    assert_eq!((settings.priority, settings.lock_ttl_minutes, settings.retry_budget), (9, 7, 3));
}

#[test]
fn what_is_no_yaml_is_told_with_its_place() {
    let problem = only("feature: [a\nb: c\n");
    assert_eq!((problem.check, problem.line), (Check::Yaml, 2), "{problem}");
    let problem = only("schema_version: 1\nfeature:\n\tid: x\n");
    assert_eq!((problem.check, problem.line, problem.text.as_str()), (Check::Yaml, 3, "id: x"));
    assert!(problem.hint.unwrap().contains("spaces"));
    expect("", Check::Yaml, (1, 1), "", "empty");
    expect("a: &x [*x]\n", Check::Yaml, (1, 8), "", "inside the anchor");
    assert_eq!(only("a: *nobody\n").check, Check::Yaml);
    assert!(only("a: 1\n---\nb: 1\n").message.contains("second document"));
    assert!(only("[a]: 1\n").message.contains("name of a field"));
    assert!(only("a: !mine 1\n").message.contains("tag"));
}

#[test]
fn a_field_stands_once() {
    let text = document(&[one()]).replace("  id: FEAT-1\n", "  id: FEAT-1\n  id: FEAT-2\n");
    expect(&text, Check::Yaml, (4, 3), "", "the field id stands here a second time");
}

#[test]
fn an_unknown_field_is_a_problem_at_every_level() {
    let text = document(&[one()]);
    let problem = expect(
        &text.replace("task_type: work\n", "task_type: work\n    prioritty: 3\n"),
        Check::Schema,
        (14, 5),
        "packages[0].prioritty",
        "no field 'prioritty'",
    );
    assert_eq!(problem.hint.as_deref(), Some("did you mean priority?"));
    expect(&text.replace("  id:", "  who: me\n  id:"), Check::Schema, (3, 3), "feature.who", "no field");
    expect(&format!("extra: 1\n{text}"), Check::Schema, (1, 1), "extra", "no field");
    expect(&text.replace("keys: []", "keys: [], ttl: 3"), Check::Schema, (16, 42), "packages[0].locks.ttl", "no field");
    expect(&text.replace("['**']", "['**'], x: 3"), Check::Schema, (17, 33), "packages[0].scope.x", "no field");
    expect(
        &text.replace("    files: [o", "    x: 1\n    files: [o"),
        Check::Schema,
        (9, 5),
        "contracts.openapi.x",
        "no",
    );
}

#[test]
fn a_missing_field_is_told_where_it_belongs() {
    let text = document(&[one()]);
    expect(&text.replace("schema_version: 1\n", ""), Check::Schema, (1, 1), "", "lacks the field schema_version");
    expect(
        &text.replace("    task_type: work\n", ""),
        Check::Schema,
        (12, 5),
        "packages[0]",
        "lacks the field task_type",
    );
    expect(
        &text.replace("read_allow: ['**'], ", ""),
        Check::Schema,
        (17, 12),
        "packages[0].scope",
        "lacks the field read_allow",
    );
}

#[test]
fn types_and_bounds_are_told_with_the_bound() {
    let text = document(&[one()]);
    let with = |line: &str| text.replace("task_type: work\n", &format!("task_type: work\n    {line}\n"));
    let told = |line: &str, path: &str, words: &str| {
        let column = 5 + line.find(": ").unwrap() as u32 + 2;
        expect(&with(line), Check::Schema, (14, column), &format!("packages[0].{path}"), words);
    };
    told("priority: 0", "priority", "can't be 0; it goes from 1 to 10");
    told("priority: 11", "priority", "can't be 11; it goes from 1 to 10");
    told("priority: high", "priority", "is a text, where a whole number belongs");
    told("priority: 1.5", "priority", "is a number, where a whole number belongs");
    told("timeout_minutes: 0", "timeout_minutes", "from 1 to 10080");
    told("min_trust_level: 5", "min_trust_level", "from 0 to 4");
    told("retry_budget: -1", "retry_budget", "from 0 to 100");
    for line in ["priority: 1", "priority: 10", "timeout_minutes: 1", "min_trust_level: 0", "worktree: {x: [1]}"] {
        valid(&with(line));
    }
    let version = text.replace("schema_version: 1", "schema_version: 2");
    expect(&version, Check::Schema, (1, 17), "schema_version", "can't be 2; it is 1");
    let mistyped = text.replace("id: FEAT-1", "id: 17");
    let problem = expect(&mistyped, Check::Schema, (3, 7), "feature.id", "is a whole number, where a text belongs");
    assert_eq!(problem.hint.as_deref(), Some("write \"17\""));
    expect(
        &text.replace("['**']", "[]"),
        Check::Schema,
        (17, 25),
        "packages[0].scope.read_allow",
        "at least one entry",
    );
    let packages = HEAD.replace("packages:", "packages: []");
    expect(&packages, Check::Schema, (11, 11), "packages", "at least one entry");
    expect(&HEAD.replace("packages:", "packages: x"), Check::Schema, (11, 11), "packages", "where a list belongs");
}

#[test]
fn a_lock_has_a_ttl_and_a_reason_within_bounds() {
    let text = document(&[one()]);
    let with = |more: &str| text.replace("keys: []", &format!("keys: [], {more}"));
    for ttl in [1, 480] {
        valid(&with(&format!("ttl_minutes: {ttl}")));
    }
    for ttl in [0, 481] {
        let path = "packages[0].locks.ttl_minutes";
        expect(&with(&format!("ttl_minutes: {ttl}")), Check::Schema, (16, 55), path, "it goes from 1 to 480");
    }
    valid(&with(&format!("reason: {}", "ä".repeat(500))));
    let path = "packages[0].locks.reason";
    let problem = expect(
        &with(&format!("reason: {}", "ä".repeat(501))),
        Check::Schema,
        (16, 50),
        path,
        "has 501 characters; at most 500",
    );
    assert_eq!(problem.text.chars().count(), 81, "the offending text is shortened");
}

#[test]
fn a_package_id_keeps_to_its_letters() {
    for id in ["a", "wp-backend_2", &"a".repeat(64)] {
        valid(&document(&[package(id, "", "", "", "")]));
    }
    for id in ["A", "2a", "-a", "a.b", "'a b'", "ä", "''", &"a".repeat(65)] {
        let text = document(&[package(id, "", "", "", "")]);
        expect(&text, Check::Schema, (12, 17), "packages[0].package_id", "is not a package id");
    }
}

#[test]
fn depends_on_names_packages_that_exist_once() {
    let (a, b) = (package("a", "", "", "", ""), package("b", "a, nobody", "", "", ""));
    let problem = expect(
        &document(&[a.clone(), b]),
        Check::DependsOn,
        (21, 21),
        "packages[1].depends_on[1]",
        "there is no package 'nobody'",
    );
    assert_eq!(problem.text, "nobody");
    let b = package("b", "a, a", "", "", "");
    expect(&document(&[a, b]), Check::Schema, (21, 21), "packages[1].depends_on[1]", "stands here already");
}

#[test]
fn a_circle_is_told_with_its_way_round() {
    let text = document(&[
        package("a", "c", "", "", ""),
        package("b", "a", "", "", ""),
        package("c", "b", "", "", ""),
        package("d", "a", "", "", ""),
    ]);
    expect(&text, Check::Cycle, (15, 18), "packages[0].depends_on[0]", "in a circle: a -> c -> b -> a");
    let text = document(&[package("a", "a", "", "", "")]);
    expect(&text, Check::Cycle, (15, 18), "packages[0].depends_on[0]", "waits for itself: a -> a");
}

#[test]
fn a_package_id_is_taken_once() {
    let text = document(&[one(), package("b", "", "", "", ""), package("a", "", "", "", "")]);
    expect(&text, Check::DuplicateId, (24, 17), "packages[2].package_id", "a is taken already, in line 12");
}

#[test]
fn a_lock_is_written_in_its_one_spelling() {
    let files = |entry: &str| document(&[package("a", "", entry, "", "")]);
    let keys = |entry: &str| document(&[package("a", "", "", entry, "")]);
    for entry in ["src/a.py", "src/**", "src/*", "'**'"] {
        valid(&files(entry));
    }
    for entry in ["'api:GET /'", "db:migration-slot", "db:schema:users", "event:user_created", "flag:feature/dark-mode"]
    {
        valid(&keys(entry));
    }
    let (file, key) = ("packages[0].locks.files[0]", "packages[0].locks.keys[0]");
    for (entry, right) in [("src//a.py", "src/a.py"), ("./src/a.py", "src/a.py"), ("src/x/../a.py", "src/a.py")] {
        let problem = expect(&files(entry), Check::LockKey, (16, 21), file, "is not how this lock is written");
        assert_eq!(problem.hint, Some(format!("write {right}")));
        assert_eq!(problem.text, entry);
    }
    expect(&files("'*.py'"), Check::LockKey, (16, 21), file, "a star stands alone at the end");
    expect(&files(".git/index"), Check::LockKey, (16, 21), file, "git's own directory");
    expect(&files("db:schema:users"), Check::LockKey, (16, 21), file, "a logical key, and stands under files");
    expect(&files("foo:bar"), Check::LockKey, (16, 21), file, "foo");
    let problem = expect(&files("'src/a.py:10-50'"), Check::LockKey, (16, 21), file, "names lines of a file");
    assert_eq!(problem.hint.as_deref(), Some("write src/a.py"));
    // A key that does not fit the outer pattern is a matter of the schema and of the key.
    let report = report(&keys("src/a.py"));
    let found: Vec<_> = report.problems.iter().map(|problem| (problem.check, problem.line, problem.column)).collect();
    assert_eq!(found, [(Check::Schema, 16, 31), (Check::LockKey, 16, 31)]);
    assert_eq!(report.problems[1].path, key);
}

#[test]
fn a_file_path_keeps_to_the_outer_pattern() {
    for entry in ["/etc/passwd", "'a.py '"] {
        let report = report(&document(&[package("a", "", entry, "", "")]));
        assert_eq!(report.problems[0].check, Check::Schema, "{entry}");
        assert!(report.problems.iter().all(|problem| (problem.line, problem.column) == (16, 21)), "{entry}");
    }
}

#[test]
fn a_lock_stands_once_in_a_package() {
    let text = document(&[package("a", "", "x.py, x.py", "", "")]);
    expect(&text, Check::Schema, (16, 27), "packages[0].locks.files[1]", "stands here already");
}

#[test]
fn a_contract_key_names_a_contract() {
    let text = |entry: &str| document(&[package("a", "", "", &format!("'{entry}'"), "")]);
    for entry in ["contract:openapi/v1.yaml", "contract:gen/models.py", "contract:gen/clients/go/x.go"] {
        valid(&text(entry));
    }
    let path = "packages[0].locks.keys[0]";
    let problem = expect(&text("contract:v1.yaml"), Check::Contract, (16, 31), path, "'v1.yaml' is no contract");
    assert_eq!(problem.hint.as_deref(), Some("write contract:openapi/v1.yaml"));
    expect(&text("contract:gen/other.py"), Check::Contract, (16, 31), path, "no contract");
}

#[test]
fn a_scope_is_made_of_globs() {
    let text = document(&[package("a", "", "", "", "src/{a,b}")]).replace("src/{a,b}", "'src/{a,b}'");
    let problem = expect(&text, Check::Scope, (17, 47), "packages[0].scope.write_allow[0]", "braces");
    assert_eq!(problem.hint.as_deref(), Some("write one entry for each alternative"));
    let text = document(&[package("a", "", "", "", "src/")]);
    expect(&text, Check::Scope, (17, 47), "packages[0].scope.write_allow[0]", "names files");
}

#[test]
fn packages_that_nothing_orders_write_different_paths() {
    let with = |depends_on: &str, write: &str| {
        document(&[package("a", "", "", "", "src/api/**"), package("b", depends_on, "", "", write)])
    };
    valid(&with("", "src/web/**"));
    valid(&with("a", "src/**"));
    let path = "packages[1].scope.write_allow[0]";
    let problem = expect(&with("", "src/**"), Check::ScopeOverlap, (23, 47), path, "b and a (src/api/** in line 17)");
    assert!(problem.message.contains("may both write src/api/x"), "{problem}");
    assert!(problem.hint.unwrap().ends_with("depends_on: [a]"));
    expect(&with("", "src/api/users.py"), Check::ScopeOverlap, (23, 47), path, "src/api/users.py");
    expect(&with("", "'**/*.md'"), Check::ScopeOverlap, (23, 47), path, ".md");
}

#[test]
fn what_a_package_denies_itself_is_no_overlap_when_nothing_is_left() {
    let with = |deny: &str| {
        let b = package("b", "", "", "", "src/**").replace("['**'],", &format!("['**'], deny: [{deny}],"));
        document(&[package("a", "", "", "", "src/api/**"), b])
    };
    valid(&with("src/api/**"));
    valid(&with("src/a*/**"));
    valid(&with("src/api/*, src/api/*/**"));
    let path = "packages[1].scope.write_allow[0]";
    let problem = only(&with("src/api/*"));
    assert_eq!((problem.check, problem.path.as_str(), problem.line), (Check::ScopeOverlap, path, 23));
    assert_eq!(only(&with("src/web/**")).check, Check::ScopeOverlap);
}

#[test]
fn packages_that_nothing_orders_lock_different_things() {
    let with = |depends_on: &str, file: &str, key: &str| {
        document(&[package("a", "", "src/api/**", "flag:billing/*", ""), package("b", depends_on, file, key, "")])
    };
    valid(&with("", "src/web.py", "flag:shop/x"));
    valid(&with("a", "src/api/x.py", "flag:billing/x"));
    let problem = expect(
        &with("", "src/api/x.py", ""),
        Check::LockOverlap,
        (22, 21),
        "packages[1].locks.files[0]",
        "b locks src/api/x.py and a locks src/api/** (line 16)",
    );
    assert_eq!(problem.text, "src/api/x.py");
    let key = "packages[1].locks.keys[0]";
    expect(&with("", "", "flag:billing/x"), Check::LockOverlap, (22, 31), key, "flag:billing/*");
    assert!(Document::parse("x", &with("", "src/api/x.py", "")).is_ok(), "a document with overlaps can be used");
}

#[test]
fn an_order_through_others_is_an_order() {
    let text = |last: &str| {
        document(&[
            package("a", "", "x.py", "", "x.py"),
            package("b", "a", "", "", ""),
            package("c", last, "x.py", "", "x.py"),
        ])
    };
    valid(&text("b"));
    let report = report(&text(""));
    let found: Vec<_> = report.problems.iter().map(|problem| (problem.check, problem.line)).collect();
    assert_eq!(found, [(Check::ScopeOverlap, 29), (Check::LockOverlap, 28)]);
}

#[test]
fn the_integration_package_may_touch_what_others_touch() {
    let with = |id: &str| document(&[one(), package(id, "", "src/a.py", "", "'**'")]);
    valid(&with("wp-integration"));
    assert_eq!(report(&with("wp-other")).problems.len(), 2);
}

#[test]
fn all_problems_are_told_at_once_and_in_the_order_of_the_checks() {
    let text = document(&[
        package("a", "nobody", "", "", "").replace("task_type: work", "task_type: 3"),
        package("b", "c", "src//x", "", ""),
        package("c", "b", "", "'contract:z'", "a/{b}").replace("a/{b}", "'a/{b}'"),
        package("c", "", "", "", ""),
    ]);
    let report = report(&text);
    let checks: Vec<Check> = report.problems.iter().map(|problem| problem.check).collect();
    let expected = [
        Check::Schema,
        Check::DependsOn,
        Check::Cycle,
        Check::DuplicateId,
        Check::LockKey,
        Check::Contract,
        Check::Scope,
    ];
    assert_eq!(checks, expected);
    assert!(report.document.is_none() && !report.is_valid());
    assert_eq!(Document::parse("x", &text).unwrap_err().len(), 7);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["problems"][1]["check"], "depends_on");
    assert_eq!(json["problems"][1]["line"], 15);
}

#[test]
fn a_slip_in_one_package_does_not_hide_an_overlap_of_others() {
    let text = document(&[
        package("a", "", "", "", "").replace("task_type: work", "task_type: 3"),
        package("b", "", "x.py", "", ""),
        package("c", "", "x.py", "", ""),
    ]);
    let checks: Vec<Check> = report(&text).problems.iter().map(|problem| problem.check).collect();
    assert_eq!(checks, [Check::Schema, Check::LockOverlap]);
}

#[test]
fn aliases_stand_for_what_they_name() {
    let b = package("b", "a", "", "", "").replace("read_allow: ['**']", "read_allow: *all");
    let a = package("a", "", "", "", "").replace("read_allow: ['**']", "read_allow: &all ['src/**']");
    let document = Document::parse("x", &document(&[a, b])).unwrap();
    assert_eq!(document.packages[1].scope.read_allow, ["src/**"]);
}

#[test]
fn a_hostile_name_steers_no_terminal() {
    let report = lockkeeper_packages::validate("a\x1b[31m.yaml", "\"\\e[31m\": 1\n");
    for problem in &report.problems {
        assert!(!problem.to_string().contains('\x1b') && !problem.text.contains('\x1b'), "{problem:?}");
    }
}
