//! Services on one store that are not set alike.

use lockkeeper_keeper::settings::Settings;
use lockkeeper_wire::operation::Operation;
use serde_json::{Value, json};

use crate::doors::{DoorKind, EngineKind, House, unlimited};
use crate::redis_server::RedisServer;

fn named(server: &str, quota_limit: u32) -> Settings {
    let mut settings = Settings { server: Some(server.to_owned()), ..unlimited() };
    settings.rules.quota_limit = quota_limit;
    settings
}

/// What two services with these quotas say of each other.
fn differs(quotas: [u32; 2]) -> [Value; 2] {
    let (redis, folder) = (RedisServer::start(), tempfile::tempdir().expect("a folder"));
    let settings = vec![named("one", quotas[0]), named("two", quotas[1])];
    let house = House::with_settings(&redis.url(), EngineKind::Redis, DoorKind::Api, folder, settings);
    // Each has written something, and says along with it what it is set to. Questions go to one after the other.
    for path in ["x", "y"] {
        house.granted("a", path, json!({}));
    }
    [(); 2].map(|()| house.ask(Operation::Status, json!({})).1["differs"].clone())
}

#[test]
fn services_that_are_set_differently_say_so_of_each_other() {
    let [of_one, of_two] = differs([10, 20]);
    for (differs, other, quota) in [(of_one, "two", "quota 20 in"), (of_two, "one", "quota 10 in")] {
        assert_eq!(differs.as_array().map(Vec::len), Some(1), "{differs}");
        assert_eq!(differs[0]["server"], other);
        assert!(differs[0]["settings"].as_str().is_some_and(|settings| settings.contains(quota)), "{differs}");
    }
    for differs in differs([10, 10]) {
        assert!(differs.is_null(), "who is set alike differs from nobody: {differs}");
    }
}
