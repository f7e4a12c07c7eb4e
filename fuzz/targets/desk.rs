//! A whole service on an engine in memory, for the targets that speak with one.

use std::sync::Arc;

use lockkeeper_core::space::Space;
use lockkeeper_engine::Memory;
use lockkeeper_keeper::audit::Audit;
use lockkeeper_keeper::metrics::Metrics;
use lockkeeper_keeper::settings::Settings;
use lockkeeper_server::service::{About, Service};
use tokio::runtime::Runtime;

pub struct Desk {
    pub runtime: Runtime,
    pub service: Arc<Service>,
    _folder: tempfile::TempDir,
}

impl Desk {
    pub fn open() -> Desk {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let service = runtime.block_on(async {
            let metrics = Arc::new(Metrics::new());
            let audit = Audit::open(folder.path(), metrics.clone()).expect("an audit log");
            let about = About {
                background: false,
                engine_from: "the target".to_owned(),
                durability: "always".to_owned(),
                socket: None,
                listen: None,
            };
            let mut settings = Settings::default();
            settings.rules.quota_limit = 0;
            let space = Space::parse("fuzz").expect("a space");
            Arc::new(Service::new(Arc::new(Memory::new()), space, settings, audit, metrics, about))
        });
        Desk { runtime, service, _folder: folder }
    }
}
