//! Settings: flags, then the environment, then lockkeeper.toml in the repository, then the user's own.

mod length;
mod mistake;
mod space;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use etcetera::BaseStrategy;
use lockkeeper_advisory::{LockNamespace, Namespaces};
use lockkeeper_core::limits::{HISTORY_KEPT_MAX, QUOTA_LIMIT_MAX, TTL_MAX, TTL_MIN};
use lockkeeper_core::policy::{Policy, PolicyText};
use lockkeeper_core::ports::PortRules;
use lockkeeper_core::session::AgentName;
use lockkeeper_core::space::Space;
use lockkeeper_core::time::Millis;
use lockkeeper_engine::EngineError;
use lockkeeper_keeper::settings::Settings;
use lockkeeper_server::auth::{self, Credential, Credentials};
use lockkeeper_server::service::policy;
use serde::Deserialize;

pub(crate) use self::length::{length, ttl};
use crate::place::{CONFIG_FILE, Place};

const ATTEMPTS_DEFAULT: u32 = 3;
const ATTEMPTS_MAX: u32 = 10;
const BACKOFF_MAX: Millis = Millis(10_000);
const PROOFS_MAX: usize = 64;

/// What a lockkeeper.toml may say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// The service to use: `unix:PATH` or `http://HOST:PORT`.
    url: Option<String>,
    /// The name of the space, in place of the repository's folder. A repository may say it.
    space: Option<String>,
    /// `shared` (default) or `separate`.
    worktrees: Option<String>,
    /// Where a service keeps its ledgers.
    engine: Option<String>,
    /// `always` (default) or `interval`.
    durability: Option<String>,
    /// Only in the user's own file: a repository can't open a port.
    listen: Option<String>,
    allowed_hosts: Option<Vec<String>>,
    credentials: Option<Vec<CredentialEntry>>,
    lock: LockTable,
    quota: QuotaTable,
    ports: PortsTable,
    redis: RedisTable,
    advisory: AdvisoryTable,
    proof: ProofTable,
    /// Who may do what, here or in a file of its own.
    policy: Option<PolicyText>,
    policy_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PortsTable {
    base: Option<u16>,
    stride: Option<u16>,
    sessions: Option<u16>,
    ttl: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RedisTable {
    /// The space whose files are shared with clients that know nothing of Lockkeeper.
    shared_space: Option<String>,
    /// How often a Redis that can't be reached is tried for one question, and how long to wait in between.
    attempts: Option<u32>,
    backoff: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProofTable {
    /// Proofs whose claims are shown beside the locks.
    directories: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AdvisoryTable {
    /// The database whose advisory locks are meant.
    database_url: Option<String>,
    /// Names of namespaces. A repository may say its own.
    namespaces: BTreeMap<String, i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LockTable {
    default_ttl: Option<String>,
    heartbeat_interval: Option<String>,
    history_ttl: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QuotaTable {
    limit: Option<u32>,
    window: Option<String>,
}

impl ConfigFile {
    /// A repository that was cloned from somewhere may name its space and its TTL. Where the user's locks live, and who
    /// is sent a credential, is the user's to say.
    fn harmless(&self) -> Result<()> {
        let ConfigFile {
            url,
            space: _,
            worktrees: _,
            engine,
            durability,
            listen,
            allowed_hosts,
            credentials,
            lock,
            quota,
            ports,
            redis,
            advisory,
            proof,
            policy,
            policy_file,
        } = self;
        let foreign = [
            ("url", url.is_some()),
            ("engine", engine.is_some()),
            ("durability", durability.is_some()),
            ("listen", listen.is_some()),
            ("allowed_hosts", allowed_hosts.is_some()),
            ("credentials", credentials.is_some()),
            ("lock.history_ttl", lock.history_ttl.is_some()),
            ("quota", quota.limit.is_some() || quota.window.is_some()),
            ("ports", *ports != PortsTable::default()),
            ("redis", *redis != RedisTable::default()),
            ("advisory.database_url", advisory.database_url.is_some()),
            ("proof", *proof != ProofTable::default()),
            ("policy", policy.is_some()),
            ("policy_file", policy_file.is_some()),
        ];
        match foreign.iter().find(|(_, set)| *set) {
            Some((name, _)) => {
                bail!("'{name}' is a setting of the user, not of a repository; write it into your own settings file")
            }
            None => Ok(()),
        }
    }
}

/// A credential besides the service's own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialEntry {
    /// The file that holds the secret, mode 0600.
    file: PathBuf,
    /// The only agent that it speaks for.
    agent_id: Option<String>,
    #[serde(default)]
    operator: bool,
}

const NOTHING_NAMED: &str = "the default";

/// Where a service keeps its ledgers. The URL may hold a password, so it is not shown.
pub(crate) struct EngineChoice {
    pub(crate) url: String,
    /// What names it, for people.
    pub(crate) from: &'static str,
}

impl EngineChoice {
    /// Nobody has named one.
    pub(crate) fn is_default(&self) -> bool {
        self.from == NOTHING_NAMED
    }

    /// What to tell whoever names this one beside a service that keeps its locks in `used`, and what to do. Whoever exports a new
    /// engine and goes on with the old service is alone in a world of its own.
    pub(crate) fn beside(&self, used: &str) -> Option<(String, String)> {
        let from = self.from;
        match lockkeeper_engine::place_of(&self.url) {
            Ok(wanted) if wanted == used => None,
            Ok(wanted) => Some((
                format!(
                    "the service that runs keeps its locks in {used}; a service started from here would use {wanted} from {from}"
                ),
                "lockkeeper stop; the next command starts one that does. End what is attached before (mcp, run, watch): it would \
                 start one as before"
                    .to_owned(),
            )),
            Err(error) => Some((
                format!(
                    "the service that runs keeps its locks in {used}, and {from} names nothing that could: {error}"
                ),
                format!("unset {from}, or mend it"),
            )),
        }
    }

    /// Says what to do about an engine that can't be used and that nobody may have meant.
    pub(crate) fn explain(&self, error: &EngineError) -> String {
        match self.from {
            "LOCK_REDIS_URL" | "REDIS_URL" => {
                format!("{error}; {} names this engine, and --engine or LOCKKEEPER_ENGINE another", self.from)
            }
            _ => error.to_string(),
        }
    }
}

/// All settings, each from the first place that has it.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) home: PathBuf,
    pub(crate) place: Place,
    repository: ConfigFile,
    user: ConfigFile,
    /// The folder of the user's settings file.
    settings: PathBuf,
    /// Whether the environment comes before the files; not when a file is judged by itself.
    with_environment: bool,
}

impl Config {
    pub(crate) fn load() -> Result<Config> {
        let place = Place::find()?;
        let repository = read(&place.root.join(CONFIG_FILE))?;
        repository.harmless().with_context(|| format!("{}", place.root.join(CONFIG_FILE).display()))?;
        let (user, settings) = match user_folder() {
            Some(settings) => (read(&settings.join(CONFIG_FILE))?, settings),
            None => (ConfigFile::default(), PathBuf::new()),
        };
        Ok(Config { home: home()?, place, repository, user, settings, with_environment: true }.apart())
    }

    fn variable(&self, name: &str) -> Option<String> {
        let set = || std::env::var(name).ok().filter(|value| !value.is_empty());
        if self.with_environment && !name.is_empty() { set() } else { None }
    }

    /// A file that the settings name: one without a folder lies beside them, wherever the service was started.
    fn beside_settings(&self, file: &Path) -> PathBuf {
        self.settings.join(file)
    }

    fn text(&self, variables: &[&str], field: impl Fn(&ConfigFile) -> Option<&String>) -> Option<String> {
        let set = variables.iter().find_map(|name| self.variable(name));
        set.or_else(|| field(&self.repository).cloned()).or_else(|| field(&self.user).cloned())
    }

    pub(crate) fn url(&self) -> Option<String> {
        self.text(&["LOCKKEEPER_URL"], |file| file.url.as_ref())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.join("socket")
    }

    /// The credential for a service on TCP: from the environment, else that of the service on this machine.
    pub(crate) fn credential(&self) -> Option<String> {
        let given = std::env::var("LOCKKEEPER_CREDENTIAL").ok().filter(|value| !value.is_empty());
        given.or_else(|| auth::read(&self.credential_file()).ok())
    }

    pub(crate) fn credential_file(&self) -> PathBuf {
        self.home.join("credential")
    }

    /// The engine, and what names it.
    pub(crate) fn engine(&self) -> EngineChoice {
        let variable = |from: &'static str| Some(EngineChoice { url: self.variable(from)?, from });
        let own = variable("LOCKKEEPER_ENGINE").or_else(|| variable("LOCK_REDIS_URL"));
        // Other programs read REDIS_URL, too: what the user wrote down for us comes before it.
        own.or_else(|| Some(EngineChoice { url: self.user.engine.clone()?, from: "the settings file" }))
            .or_else(|| variable("REDIS_URL"))
            .unwrap_or_else(|| EngineChoice {
                url: format!("file:{}", self.home.join("ledgers").display()),
                from: NOTHING_NAMED,
            })
    }

    /// The database whose advisory locks are meant: `DATABASE_URL`, else the user's settings.
    pub(crate) fn database_url(&self) -> Option<String> {
        let set = std::env::var("DATABASE_URL").ok().filter(|value| !value.is_empty());
        set.or_else(|| self.user.advisory.database_url.clone())
    }

    /// Names of advisory namespaces: the user's, and the repository's own.
    pub(crate) fn namespaces(&self) -> Result<Namespaces> {
        let mut names = Namespaces::default();
        for (name, number) in self.user.advisory.namespaces.iter().chain(&self.repository.advisory.namespaces) {
            names
                .name(name, LockNamespace::new(*number))
                .with_context(|| format!("advisory.namespaces in {CONFIG_FILE}"))?;
        }
        Ok(names)
    }

    /// The space whose files are shared with clients that know nothing of Lockkeeper.
    pub(crate) fn shared_space(&self) -> Result<Option<Space>> {
        let named = self.variable("LOCKKEEPER_REDIS_SHARED_SPACE").or_else(|| self.user.redis.shared_space.clone());
        named.map(|space| Space::parse(&space).context("redis.shared_space")).transpose()
    }

    /// The proofs whose claims are shown beside the locks. Whatever a service may read, a list shows: so the user names them.
    pub(crate) fn proof_directories(&self) -> Result<Vec<PathBuf>> {
        let folders = &self.user.proof.directories;
        if folders.len() > PROOFS_MAX {
            bail!("proof.directories has at most {PROOFS_MAX} folders");
        }
        match folders.iter().find(|folder| !folder.is_absolute()) {
            Some(folder) => bail!("proof.directories: {} is no absolute path", folder.display()),
            None => Ok(folders.clone()),
        }
    }

    pub(crate) fn durability(&self) -> Option<String> {
        self.text(&["LOCKKEEPER_DURABILITY"], |file| file.durability.as_ref())
    }

    pub(crate) fn listen(&self) -> Option<String> {
        self.variable("LOCKKEEPER_LISTEN").or_else(|| self.user.listen.clone())
    }

    pub(crate) fn allowed_hosts(&self) -> Vec<String> {
        self.user.allowed_hosts.clone().unwrap_or_default()
    }

    /// The service's own credential, which is made at the first start, and those that are configured.
    pub(crate) fn credentials(&self) -> Result<Credentials> {
        let path = self.credential_file();
        let own = auth::read_or_make(&path).with_context(|| format!("the credential {}", path.display()))?;
        let own = Credential::new(&own, None, true);
        Ok(Credentials::new([own].into_iter().chain(self.other_credentials()?).collect()))
    }

    /// The credentials that are configured.
    pub(crate) fn other_credentials(&self) -> Result<Vec<Credential>> {
        let read = |entry: &CredentialEntry| {
            let file = self.beside_settings(&entry.file);
            let secret = auth::read(&file).with_context(|| format!("the credential {}", file.display()))?;
            let agent = entry.agent_id.as_deref().map(AgentName::parse).transpose()?;
            Ok(Credential::new(&secret, agent, entry.operator))
        };
        self.user.credentials.iter().flatten().map(read).collect()
    }

    /// The default TTL of this repository, for a service that was started elsewhere.
    pub(crate) fn default_ttl(&self) -> Result<Option<Millis>> {
        self.length("LOCK_TTL_MS", 1, "lock.default_ttl", |file| file.lock.default_ttl.as_ref())
    }

    pub(crate) fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::default();
        if let Some(ttl) = self.default_ttl()? {
            if ttl < TTL_MIN || ttl > TTL_MAX {
                bail!("the default TTL is {TTL_MIN} to {TTL_MAX}, not {ttl}");
            }
            settings.default_ttl = ttl;
        }
        let interval = self.length("", 1, "lock.heartbeat_interval", |file| file.lock.heartbeat_interval.as_ref())?;
        if let Some(interval) = interval {
            if interval < Millis(100) {
                bail!("the heartbeat interval is at least 100 ms");
            }
            settings.heartbeat_interval = interval;
        }
        let rules = &mut settings.rules;
        if let Some(kept) =
            self.length("LOCK_HISTORY_TTL_SEC", 1000, "lock.history_ttl", |file| file.lock.history_ttl.as_ref())?
        {
            // Nothing is "no expiry" for those who set this variable elsewhere, too.
            rules.history_kept = if kept.0 == 0 { HISTORY_KEPT_MAX } else { kept };
        }
        let window = self.length("LOCK_RATE_LIMIT_WINDOW_MS", 1, "quota.window", |file| file.quota.window.as_ref())?;
        if let Some(window) = window {
            if window.0 == 0 {
                bail!("the window of the quota is longer than nothing");
            }
            rules.quota_window = window;
        }
        let limit = match self.variable("LOCK_RATE_LIMIT_PER_MIN") {
            Some(limit) => Some(limit.parse().context("LOCK_RATE_LIMIT_PER_MIN is a number; 0 is no limit")?),
            None => self.user.quota.limit,
        };
        if let Some(limit) = limit {
            if limit > QUOTA_LIMIT_MAX {
                bail!("the quota is at most {QUOTA_LIMIT_MAX}; 0 is no limit");
            }
            rules.quota_limit = limit;
        }
        if let Some(bytes) = self.variable("LOCKKEEPER_SNAPSHOT_BYTES") {
            settings.snapshot_bytes = bytes.parse().context("LOCKKEEPER_SNAPSHOT_BYTES is a number of bytes")?;
        }
        settings.attempts = self.user.redis.attempts.unwrap_or(ATTEMPTS_DEFAULT);
        if !(1..=ATTEMPTS_MAX).contains(&settings.attempts) {
            bail!("redis.attempts is 1 to {ATTEMPTS_MAX}");
        }
        if let Some(backoff) = self.length("", 1, "redis.backoff", |file| file.redis.backoff.as_ref())? {
            if backoff > BACKOFF_MAX {
                bail!("redis.backoff is at most {BACKOFF_MAX}");
            }
            settings.backoff = backoff;
        }
        settings.rules.ports = self.ports()?;
        Ok(settings)
    }

    fn ports(&self) -> Result<PortRules> {
        let PortsTable { base, stride, sessions, ttl } = &self.user.ports;
        let mut ports = PortRules::default();
        ports.base = base.unwrap_or(ports.base);
        ports.stride = stride.unwrap_or(ports.stride);
        ports.sessions = sessions.unwrap_or(ports.sessions);
        if let Some(ttl) = ttl {
            ports.ttl = length(ttl).with_context(|| format!("ports.ttl in {CONFIG_FILE}"))?;
            if !(TTL_MIN..=TTL_MAX).contains(&ports.ttl) {
                bail!("ports.ttl is {TTL_MIN} to {TTL_MAX}");
            }
        }
        ports.check().with_context(|| format!("ports in {CONFIG_FILE}"))
    }

    /// The policy as it is written now: in the file that is named, or in the user's own settings.
    pub(crate) fn policy(&self) -> Result<Policy> {
        if self.user.policy_file.is_some() && self.user.policy.is_some() {
            bail!("a policy is in [policy] or in the file that policy_file names, not in both");
        }
        let named = policy_from_environment();
        match (named.as_ref().or(self.user.policy_file.as_ref()), &self.user.policy) {
            (Some(path), _) => read_policy(&self.beside_settings(path)),
            (None, Some(text)) => policy(text.clone()).with_context(|| format!("policy in {CONFIG_FILE}")),
            (None, None) => Ok(Policy::default()),
        }
    }

    /// A length of time: a whole number of `unit` milliseconds in the environment, or a text such as `30s` in a file.
    fn length(
        &self,
        variable: &str,
        unit: u64,
        name: &str,
        field: impl Fn(&ConfigFile) -> Option<&String>,
    ) -> Result<Option<Millis>> {
        if let Some(value) = self.variable(variable) {
            let number: u64 = value.parse().with_context(|| format!("{variable} is a whole number, not '{value}'"))?;
            return Ok(Some(Millis(number.saturating_mul(unit))));
        }
        let Some(text) = self.text(&[], field) else { return Ok(None) };
        Ok(Some(length(&text).with_context(|| format!("{name} in {CONFIG_FILE}"))?))
    }
}

/// Names the file with the policy.
pub(crate) const POLICY_VARIABLE: &str = "LOCKKEEPER_POLICY";

/// The policy that the environment names, seen from here: a service in the background is elsewhere.
pub(crate) fn policy_from_environment() -> Option<PathBuf> {
    let named = std::env::var_os(POLICY_VARIABLE).filter(|path| !path.is_empty())?;
    Some(std::path::absolute(&named).unwrap_or_else(|_| named.into()))
}

/// The largest policy that is read.
const POLICY_BYTES_MAX: u64 = 1 << 20;
/// The largest settings file that is read.
pub(crate) const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The text of a file of this size at most. A pipe, a device or a folder is not read: it may never end.
pub(crate) fn text_of(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    if about.len() > bytes_max {
        return Err(std::io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    std::fs::read_to_string(path)
}

/// Reads a policy from a file of its own.
pub(crate) fn read_policy(path: &Path) -> Result<Policy> {
    let place = || format!("the policy {}", path.display());
    let text = text_of(path, POLICY_BYTES_MAX).with_context(place)?;
    let read = toml::from_str(&text).map_err(|error| mistake::told(&text, &error));
    policy(read.with_context(place)?).with_context(place)
}

/// The folder of the user's own settings file.
pub(crate) fn user_folder() -> Option<PathBuf> {
    etcetera::base_strategy::choose_native_strategy().ok().map(|strategy| strategy.config_dir().join("lockkeeper"))
}

/// Judges the text of a settings file by itself, whatever the environment says.
pub(crate) fn judge(text: &str, of_repository: bool) -> Result<()> {
    let mut file = parsed(text)?;
    if of_repository {
        file.harmless()?;
    }
    if let Some(space) = file.space.take() {
        Space::parse(&space).context("space")?;
    }
    if let Some(url) = &file.url {
        lockkeeper_client::Endpoint::parse(url, None).context("url")?;
    }
    match file.durability.as_deref() {
        None | Some("always" | "interval") => {}
        Some(other) => bail!("durability is \"always\" or \"interval\", not \"{other}\""),
    }
    let nowhere = || PathBuf::from("/");
    let place = Place { root: nowhere(), shared: nowhere(), separate: false, here: nowhere() };
    let (home, settings, repository) = (nowhere(), nowhere(), ConfigFile::default());
    let alone = Config { home, place, repository, user: file, settings, with_environment: false };
    alone.space()?;
    alone.settings()?;
    alone.shared_space()?;
    alone.namespaces()?;
    alone.proof_directories()?;
    if let Some(engine) = &alone.user.engine {
        lockkeeper_engine::place_of(engine).context("engine")?;
    }
    if let Some(listen) = alone.user.listen.as_deref().filter(|listen| *listen != "none") {
        listen.parse::<std::net::SocketAddr>().context("listen is an address such as 127.0.0.1:5625, or none")?;
    }
    match (&alone.user.policy, &alone.user.policy_file) {
        (Some(_), Some(_)) => bail!("a policy is in [policy] or in the file that policy_file names, not in both"),
        (Some(text), None) => policy(text.clone()).map(drop).context("policy"),
        // The file need not be there yet.
        (None, _) => Ok(()),
    }
}

fn parsed(text: &str) -> Result<ConfigFile> {
    toml::from_str(text).map_err(|error| mistake::told(text, &error))
}

fn read(path: &Path) -> Result<ConfigFile> {
    match text_of(path, CONFIG_BYTES_MAX) {
        Ok(text) => parsed(&text).with_context(|| format!("{} can't be used", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ConfigFile::default()),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", path.display())),
    }
}

/// Where the state lives: `LOCKKEEPER_HOME`, else the state directory of the user.
pub(crate) fn home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("LOCKKEEPER_HOME").filter(|home| !home.is_empty()) {
        let home = PathBuf::from(home);
        if home.is_relative() {
            // Each folder would have a service of its own, and none would know of the others' locks.
            bail!("LOCKKEEPER_HOME is the whole path of a folder, from the root on, not {}", home.display());
        }
        return Ok(home);
    }
    let strategy =
        etcetera::base_strategy::choose_native_strategy().context("there is no home directory; set LOCKKEEPER_HOME")?;
    let state = strategy.state_dir().unwrap_or_else(|| strategy.data_dir());
    Ok(state.join("lockkeeper"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings> {
        let nowhere = || PathBuf::from("/");
        let place = Place { root: nowhere(), shared: nowhere(), separate: false, here: nowhere() };
        let (repository, user) = (ConfigFile::default(), parsed(text)?);
        Config { home: nowhere(), place, repository, user, settings: nowhere(), with_environment: false }.settings()
    }

    #[test]
    fn how_often_redis_is_tried_is_what_the_file_says() {
        let of = |text: &str| settings(text).map(|settings| (settings.attempts, settings.backoff)).ok();
        assert_eq!(of(""), Some((ATTEMPTS_DEFAULT, Millis(100))));
        assert_eq!(of("[redis]\nattempts = 7\nbackoff = \"20ms\""), Some((7, Millis(20))));
        for wrong in ["attempts = 0", "attempts = 1000000", "backoff = \"1h\"", "backoff = 20"] {
            assert_eq!(of(&format!("[redis]\n{wrong}")), None, "{wrong}");
        }
    }
}
