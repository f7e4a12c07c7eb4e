//! The OpenAPI document, made from the table of operations and the types of their bodies.

use lockkeeper_wire::answer::Refused;
use lockkeeper_wire::operation::{Access, Method, Operation, Row, TABLE};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The document as served at `/openapi.json`.
pub fn document() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let refused = generator.subschema_for::<Refused>();
    let mut paths = Map::new();
    for row in &TABLE {
        let operation = row.operation;
        if row.access == Access::Local {
            continue;
        }
        let request = (row.request)(&mut generator);
        let answer = (row.answer)(&mut generator);
        let path =
            if operation == Operation::KeyStatus { "/locks/status/{key}".to_owned() } else { format!("/{}", row.name) };
        let method = match row.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        let fields = generator.definitions().get(&name_of(request.as_value())).cloned().unwrap_or_default();
        let described = describe(operation, row, &fields, request.as_value(), answer.as_value(), refused.as_value());
        paths.insert(path, json!({ method: described }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Lockkeeper",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Who may change what, why, until when, and who is next.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
    })
}

fn name_of(reference: &Value) -> String {
    let reference = reference.get("$ref").and_then(Value::as_str).unwrap_or_default();
    reference.rsplit('/').next().unwrap_or_default().to_owned()
}

fn describe(
    operation: Operation,
    row: &Row,
    fields: &Value,
    request: &Value,
    answer: &Value,
    refused: &Value,
) -> Value {
    let kind = if row.streams { "text/event-stream" } else { "application/json" };
    let mut described = json!({
        "operationId": row.name.replace(['/', '-'], "_"),
        "summary": row.summary,
        "responses": {
            "200": { "description": "Done", "content": { kind: { "schema": answer } } },
            "default": { "description": "Refused", "content": { "application/json": { "schema": refused } } },
        },
    });
    match row.access {
        Access::Anybody => {}
        Access::Credential | Access::Operator | Access::Local => {
            described["security"] = json!([{ "bearer": [] }, { "key": [] }]);
        }
    }
    match row.method {
        Method::Post => {
            described["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": request } } });
        }
        Method::Get => described["parameters"] = parameters(operation, fields),
    }
    described
}

/// The fields of a request that comes in a query, those that a query can carry.
fn parameters(operation: Operation, fields: &Value) -> Value {
    let mut parameters = Vec::new();
    if operation == Operation::KeyStatus {
        parameters.push(json!({
            "name": "key", "in": "path", "required": true, "schema": { "type": "string" },
            "description": "A path or a logical key",
        }));
        parameters.push(json!({ "name": "space", "in": "query", "schema": { "type": "string" } }));
        return Value::Array(parameters);
    }
    for (name, schema) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        parameters.push(json!({ "name": name, "in": "query", "schema": schema }));
    }
    Value::Array(parameters)
}
