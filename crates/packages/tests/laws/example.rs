//! The worked example, and the schema that it keeps to.

use lockkeeper_packages::{
    Document, FILE_PATH_PATTERN, LOGICAL_KEY_PATTERN, PACKAGE_ID_PATTERN, plan, schema, validate,
};
use serde_json::Value;

const EXAMPLE: &str = include_str!("../../../../examples/work-packages/work-packages.yaml");

#[test]
fn the_example_is_right() {
    let report = validate("work-packages.yaml", EXAMPLE);
    assert_eq!(report.problems, []);
    let document = report.document.unwrap();
    assert_eq!(document.packages.len(), 6);
    assert_eq!(document.settings(document.package("database").unwrap()).lock_ttl_minutes, 90);
    assert_eq!(document.settings(document.package("backend-api").unwrap()).lock_ttl_minutes, 120);
}

#[test]
fn the_example_runs_in_three_waves() {
    let plan = plan(&Document::parse("x", EXAMPLE).unwrap());
    let waves: Vec<Vec<&str>> = plan.waves.iter().map(|wave| wave.iter().map(String::as_str).collect()).collect();
    assert_eq!(waves, [vec!["contracts", "database"], vec!["backend-api", "frontend", "docs"], vec!["wp-integration"]]);
    assert_eq!(plan.collisions, []);
}

#[test]
fn the_schema_has_the_patterns_and_the_bounds() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(LOGICAL_KEY_PATTERN, r"^(api|db|event|flag|env|contract|feature):.+$");
    assert_eq!(FILE_PATH_PATTERN, r"^(?!/)(?!.*\s+$).+");
    let definitions = &schema["$defs"];
    assert_eq!(definitions["LogicalKey"]["pattern"], LOGICAL_KEY_PATTERN);
    assert_eq!(definitions["FilePath"]["pattern"], FILE_PATH_PATTERN);
    assert_eq!(definitions["PackageId"]["pattern"], PACKAGE_ID_PATTERN);
    assert_eq!(definitions["Locks"]["properties"]["keys"]["items"]["$ref"], "#/$defs/LogicalKey");
    assert_eq!(definitions["Locks"]["properties"]["keys"]["maxItems"], 256);
    assert_eq!(definitions["Locks"]["properties"]["ttl_minutes"]["maximum"], 480);
    assert_eq!(definitions["Locks"]["properties"]["reason"]["maxLength"], 500);
    assert_eq!(definitions["Package"]["properties"]["priority"]["minimum"], 1);
    assert_eq!(definitions["Package"]["properties"]["priority"]["maximum"], 10);
    assert_eq!(definitions["Scope"]["properties"]["read_allow"]["minItems"], 1);
    assert_eq!(definitions["Defaults"]["properties"]["lock_ttl_minutes"]["default"], 120);
    assert_eq!(schema["properties"]["packages"]["maxItems"], 10_000);
    assert_eq!(schema["properties"]["schema_version"]["maximum"], 1);
}

#[test]
fn the_schema_takes_no_unknown_fields() {
    fn objects(value: &Value, found: &mut usize) {
        if value["properties"].is_object() {
            assert_eq!(value["additionalProperties"], false, "{value}");
            *found += 1;
        }
        match value {
            Value::Object(fields) => fields.values().for_each(|inner| objects(inner, found)),
            Value::Array(items) => items.iter().for_each(|inner| objects(inner, found)),
            _ => {}
        }
    }
    let mut found = 0;
    objects(&schema(), &mut found);
    assert_eq!(found, 8, "document, feature, contracts, openapi, defaults, package, locks, scope");
}

#[test]
fn the_schema_uses_only_keywords_that_are_checked() {
    fn keywords(schema: &Value) {
        const KNOWN: [&str; 20] = [
            "$schema",
            "$defs",
            "$ref",
            "title",
            "description",
            "default",
            "format",
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "uniqueItems",
            "pattern",
        ];
        for (name, inner) in schema.as_object().unwrap() {
            assert!(KNOWN.contains(&name.as_str()), "{name}");
            match name.as_str() {
                "$defs" | "properties" => inner.as_object().unwrap().values().for_each(keywords),
                "items" => keywords(inner),
                _ => {}
            }
        }
    }
    keywords(&schema());
}

#[test]
fn a_document_that_was_read_is_written_and_read_again() {
    let document = Document::parse("x", EXAMPLE).unwrap();
    let json = serde_json::to_string(&document).unwrap();
    // JSON is YAML.
    assert_eq!(Document::parse("x", &json).unwrap(), document);
}
