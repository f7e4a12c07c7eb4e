//! Opens connections to a PostgreSQL, and refuses one that can't keep locks.

use std::fmt;
use std::time::Duration;

use std::future::poll_fn;
use tokio::task::JoinHandle;
use tokio_postgres::tls::{MakeTlsConnect, NoTls, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Connection, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::Address;
use super::{schema, trouble};
use crate::{EngineError, tls};

/// Older ones are not tried.
const VERSION_MIN: i32 = 150_000;

/// How much longer than we the server may take for a statement: what is large is given more time here, too.
const STATEMENT_TIME_MORE: Duration = Duration::from_secs(60);

const POOLER: &str =
    "is a pooler that does not pass on what a session is started with: connect to the PostgreSQL itself";

/// Takes what the server says without being asked. Must not wait.
pub(super) type Told = Box<dyn FnMut(AsyncMessage) + Send>;

/// Everything that is needed to connect.
pub(super) struct Dial {
    pub(super) address: Address,
    tls: Option<MakeRustlsConnect>,
}

/// What matters of a server later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// What it acknowledged survives kill -9 and power loss.
    pub(super) is_durable: bool,
}

/// An open connection. Lost is lost: it is never mended.
pub(super) struct Line {
    pub(super) client: Client,
    pub(super) look: Statement,
    pub(super) append: Statement,
    pub(super) facts: Facts,
    driver: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("closed", &self.client.is_closed()).finish_non_exhaustive()
    }
}

impl Dial {
    pub(super) fn new(address: Address) -> Result<Dial, EngineError> {
        let tls = address.tls.as_ref().map(tls::config).transpose()?.map(MakeRustlsConnect::new);
        Ok(Dial { address, tls })
    }

    pub(super) fn time_limit(&self) -> Duration {
        self.address.time_limit
    }

    /// A connection for statements, to a server that was examined and has the tables.
    pub(super) async fn line(&self) -> Result<Line, EngineError> {
        let place = &self.address;
        let examined = async {
            let (client, driver) = self.connect(Box::new(|_| {})).await?;
            let facts = self.examine(&client).await?;
            let version = schema::version(&client, place).await?;
            Ok((client, driver, facts, version))
        };
        let (client, driver, facts, version) = self.in_time(examined).await?;
        schema::update(&client, place, version).await?;
        let look = "select * from lockkeeper_look($1, $2, $3, $4, $5, $6, $7)";
        let append = "select * from lockkeeper_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
                      $15, $16, $17, $18, $19)";
        let prepared = async {
            let both = tokio::try_join!(client.prepare(look), client.prepare(append));
            both.map_err(|error| trouble::of(&error, place).into_error())
        };
        let (look, append) = self.in_time(prepared).await?;
        Ok(Line { client, look, append, facts, driver })
    }

    /// A connection on which the server says things without being asked.
    pub(super) async fn listen(&self, told: Told) -> Result<(Client, JoinHandle<()>), EngineError> {
        self.in_time(self.connect(told)).await
    }

    async fn connect(&self, told: Told) -> Result<(Client, JoinHandle<()>), EngineError> {
        match &self.tls {
            Some(tls) => self.connect_by(tls.clone(), told).await,
            None => self.connect_by(NoTls, told).await,
        }
    }

    async fn connect_by<T>(&self, tls: T, told: Told) -> Result<(Client, JoinHandle<()>), EngineError>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let place = &self.address;
        let mut config = self.address.config.clone();
        // By which a session of one's own is known: whoever stands in between does not pass it on.
        let given = config.get_options().map(|options| format!("{options} ")).unwrap_or_default();
        config.options(format!("{given}-c lockkeeper.direct=yes"));
        let connected = config.connect(tls).await;
        let (client, connection) = connected.map_err(|error| self.explained(trouble::unreachable(place, &error)))?;
        let driver = tokio::spawn(drive(connection, told));
        // What a role or a server has otherwise by default. The server ends what it does for somebody who is gone, and in
        // any case after a while.
        let millis = (self.time_limit() + STATEMENT_TIME_MORE).as_millis();
        let settings = format!(
            "set statement_timeout = {millis}; set idle_in_transaction_session_timeout = {millis}; \
             set idle_session_timeout = 0; set lock_timeout = 0; set client_min_messages = warning; \
             set default_transaction_isolation = 'read committed'; set default_transaction_deferrable = off; \
             set standard_conforming_strings = on"
        );
        let set = client.batch_execute(&settings).await;
        set.map_err(|error| trouble::of(&error, place).into_error())?;
        // Not every system can notice that.
        let _ = client.batch_execute("set client_connection_check_interval = 1000").await;
        Ok((client, driver))
    }

    /// Says what to do about a server that speaks in the clear only.
    fn explained(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Unreachable(why) if why.contains("server does not support TLS") => EngineError::Invalid(
                format!("{} does not speak TLS; if nobody can listen in between, add ?sslmode=disable", self.address),
            ),
            EngineError::Unreachable(why) if why.contains("startup parameter") => {
                EngineError::Invalid(format!("{} {POOLER}", self.address))
            }
            other => other,
        }
    }

    async fn examine(&self, client: &Client) -> Result<Facts, EngineError> {
        let place = &self.address;
        let asked = "select current_setting('server_version_num')::int, pg_is_in_recovery(), \
                     current_setting('default_transaction_read_only') = 'on', current_setting('fsync') = 'on' \
                     and current_setting('full_page_writes') = 'on', current_setting('synchronous_commit') = 'off', \
                     current_setting('server_version'), current_schema() is null, \
                     current_setting('server_encoding'), current_setting('synchronous_commit'), \
                     coalesce(current_setting('lockkeeper.direct', true), '') <> 'yes'";
        let row = client.query_one(asked, &[]).await.map_err(|error| trouble::of(&error, place).into_error())?;
        let version: i32 = row.get(0);
        let refused = |why: &str| Err(EngineError::Invalid(format!("{place} {why}")));
        if version < VERSION_MIN {
            let version: String = row.get(5);
            return refused(&format!("is PostgreSQL {version}: Lockkeeper needs 15 or later"));
        }
        if row.get(1) {
            return refused("is a replica: name the primary, or all hosts with ?target_session_attrs=read-write");
        }
        if row.get(2) {
            return refused("takes nothing but reads: set default_transaction_read_only = off for this user");
        }
        if row.get(6) {
            return refused("has no schema to put tables into: look at search_path");
        }
        if row.get(9) {
            return refused(POOLER);
        }
        let encoding: String = row.get(7);
        if encoding != "UTF8" {
            return refused(&format!(
                "has the encoding {encoding}: Lockkeeper needs a database with the encoding UTF8"
            ));
        }
        // Said again even if it is so: whoever changes it for the server does not change it for us.
        let waits: String = row.get(8);
        let waits = if row.get(4) { "on" } else { waits.as_str() };
        let set = client.batch_execute(&format!("set synchronous_commit = {waits}")).await;
        set.map_err(|error| trouble::of(&error, place).into_error())?;
        Ok(Facts { is_durable: row.get(3) })
    }

    async fn in_time<T>(&self, opening: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
        match tokio::time::timeout(self.time_limit(), opening).await {
            Ok(opened) => opened,
            Err(_) => {
                let (address, millis) = (&self.address, self.time_limit().as_millis());
                Err(EngineError::Unreachable(format!("{address} has not answered within {millis} ms")))
            }
        }
    }
}

/// Moves bytes until the connection ends.
async fn drive<S, T>(mut connection: Connection<S, T>, mut told: Told)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        told(message);
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("address", &self.address).finish_non_exhaustive()
    }
}
