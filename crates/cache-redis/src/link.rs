//! Connections to Redis: one task per connection opens, watches and reopens it. Commands use any open connection.

use crate::Settings;
use crate::bounded::{Bounded, Unanswered};
use crate::limits::{LASTED, PAUSES, PIPELINE_MAX};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisResult, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// A command without a result.
pub(crate) enum CommandError {
    /// Redis replied with an error.
    Rejected,
    /// There was no reply in time, or no connection.
    Failed,
}

pub(crate) struct Connections {
    settings: Settings,
    /// Without credentials: the library hides the reason of a rejected password, so [`greet`](Self::greet) sends it.
    info: RedisConnectionInfo,
    connections: Vec<RedisConnection>,
    /// Permits for commands in flight.
    room: Semaphore,
    turn: AtomicUsize,
    up: AtomicUsize,
    /// True once it is logged that there is no connection.
    is_down: AtomicBool,
    /// True once it is logged that Redis rejects commands; reset by a new connection.
    is_rejecting: AtomicBool,
}

#[derive(Default)]
struct RedisConnection {
    open: Mutex<Option<OpenConnection>>,
}

#[derive(Clone)]
struct OpenConnection {
    connection: MultiplexedConnection,
    unanswered: Unanswered,
    failure: Arc<Failure>,
}

/// Reports a failed connection to the task that keeps it.
#[derive(Default)]
struct Failure {
    reported: Notify,
    why: Mutex<String>,
}

impl Connections {
    pub(crate) fn new(settings: Settings) -> Self {
        let size = settings.pool_size;
        Self {
            settings,
            info: RedisConnectionInfo::default().set_skip_set_lib_name(),
            connections: (0..size).map(|_| RedisConnection::default()).collect(),
            room: Semaphore::new(size * PIPELINE_MAX),
            turn: AtomicUsize::new(0),
            up: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            is_rejecting: AtomicBool::new(false),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn up(&self) -> usize {
        self.up.load(Relaxed)
    }

    /// Keeps a connection open until the task is aborted.
    pub(crate) async fn keep(self: Arc<Self>, number: usize) {
        let Some(slot) = self.connections.get(number) else { return };
        let [mut pause, longest] = PAUSES;
        loop {
            let begun = Instant::now();
            let why = match timeout(self.settings.connect_timeout, self.connect()).await {
                Err(_) => format!("no connection within {} ms", self.settings.connect_timeout.as_millis()),
                Ok(Err(why)) => why,
                Ok(Ok((open, driver))) => {
                    let failure = open.failure.clone();
                    *slot.open.lock() = Some(open);
                    self.opened();
                    // Ends when the connection is closed or a command reports its failure. Dropping the driver then
                    // fails all commands in flight at once.
                    let why = tokio::select! {
                        () = driver => "the connection was closed".to_owned(),
                        () = failure.reported.notified() => failure.why.lock().clone(),
                    };
                    *slot.open.lock() = None;
                    self.up.fetch_sub(1, Relaxed);
                    why
                }
            };
            self.closed(&why);
            if begun.elapsed() >= LASTED {
                pause = PAUSES[0];
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    async fn connect(&self) -> Result<(OpenConnection, impl Future<Output = ()>), String> {
        let Settings { host, port, .. } = &self.settings;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|e| self.cannot_connect(&e))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let unanswered = Unanswered::default();
        let stream = Bounded { stream, unanswered: unanswered.clone() };
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(&self.info, stream, AsyncConnectionConfig::new())
                .await
                .map_err(|e| error_text(&e))?;
        // Longer than the timeout in `ask`, which also closes the connection.
        connection.set_response_timeout(self.settings.socket_timeout * 2);
        let mut driver = Box::pin(driver);
        let mut greeting = connection.clone();
        tokio::select! {
            () = &mut driver => return Err("the connection was closed".to_owned()),
            greeted = self.greet(&mut greeting) => greeted.map_err(|e| error_text(&e))?,
        }
        unanswered.store(0, Relaxed);
        Ok((OpenConnection { connection, unanswered, failure: Arc::default() }, driver))
    }

    /// Authenticates, selects the database, and waits for the reply to a PING.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let Settings { user, password, database, .. } = &self.settings;
        match (user, password) {
            (_, None) => {}
            (None, Some(password)) => _ = send(connection, &["AUTH", password]).await?,
            (Some(user), Some(password)) => match send(connection, &["AUTH", user, password]).await {
                // A Redis before 6.0 has no users.
                Err(e) if e.detail().is_some_and(|detail| detail.contains("wrong number of arguments")) => {
                    _ = send(connection, &["AUTH", password]).await?;
                }
                reply => _ = reply?,
            },
        }
        if *database != 0 {
            send(connection, &["SELECT", &database.to_string()]).await?;
        }
        send(connection, &["PING"]).await?;
        Ok(())
    }

    /// The error in the form of Triton's Redis client: `Connection refused`, without the number of the error.
    fn cannot_connect(&self, why: &std::io::Error) -> String {
        let why = why.to_string();
        let reason = why.strip_prefix("failed to lookup address information: ").unwrap_or(&why);
        let reason = reason.split(" (os error").next().unwrap_or(reason);
        format!("failed to connect to Redis ({}): {reason}", self.address())
    }

    fn opened(&self) {
        self.is_rejecting.store(false, Relaxed);
        if self.up.fetch_add(1, Relaxed) == 0 && self.is_down.swap(false, Relaxed) {
            log::info!("the Redis of the response cache at {} is used again", self.address());
        }
    }

    fn closed(&self, why: &str) {
        if self.up() == 0 && !self.is_down.swap(true, Relaxed) {
            log::warn!(
                "the Redis of the response cache at {} is not used: {why}; nothing is cached meanwhile",
                self.address()
            );
        }
    }

    fn address(&self) -> String {
        format!("{}:{}", self.settings.host, self.settings.port)
    }

    /// Sends a command on one of the connections and returns the reply.
    pub(crate) async fn ask(&self, command: Cmd) -> Result<Value, CommandError> {
        let Ok(Ok(_room)) = timeout(self.settings.wait_timeout, self.room.acquire()).await else {
            return Err(CommandError::Failed);
        };
        let (first, count) = (self.turn.fetch_add(1, Relaxed), self.connections.len());
        let of = |n: usize| self.connections.get(n % count.max(1));
        let found = (0..count).filter_map(|n| of(first.wrapping_add(n))).find_map(|slot| {
            let open = slot.open.lock().clone()?;
            Some((slot, open))
        });
        let Some((slot, mut open)) = found else { return Err(CommandError::Failed) };
        let why = match timeout(self.settings.socket_timeout, open.connection.send_packed_command(&command)).await {
            Err(_) => format!("no answer within {} ms", self.settings.socket_timeout.as_millis()),
            // Not an error of Redis: the reply breaks the protocol, or the connection is closed.
            Ok(Err(e)) if e.code().is_none() => e.to_string(),
            Ok(reply) => {
                open.unanswered.store(0, Relaxed);
                return reply.and_then(Value::extract_error).map_err(|e| self.rejected(&e));
            }
        };
        slot.fail(why, &open.failure);
        Err(CommandError::Failed)
    }

    /// Logs an error of Redis: it is full, read-only, loading, or denies access. The connection still works.
    fn rejected(&self, why: &redis::RedisError) -> CommandError {
        if !self.is_rejecting.swap(true, Relaxed) {
            let (address, text) = (self.address(), error_text(why));
            log::warn!("the Redis of the response cache at {address} refuses a command: {text}");
        }
        CommandError::Rejected
    }
}

async fn send(connection: &mut MultiplexedConnection, words: &[&str]) -> RedisResult<Value> {
    let mut command = Cmd::new();
    words.iter().for_each(|word| _ = command.arg(word));
    connection.send_packed_command(&command).await.and_then(Value::extract_error)
}

/// Text of an error; for an error of Redis its original text: `NOAUTH Authentication required.`
fn error_text(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

impl RedisConnection {
    /// Closes the connection, unless it is closed already.
    fn fail(&self, why: String, failure: &Arc<Failure>) {
        let mut open = self.open.lock();
        if open.as_ref().is_some_and(|o| Arc::ptr_eq(&o.failure, failure)) {
            *open = None;
            *failure.why.lock() = why;
            failure.reported.notify_one();
        }
    }
}
