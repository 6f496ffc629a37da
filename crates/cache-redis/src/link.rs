//! Connections to Redis: one task per connection opens, watches and reopens it. Commands use any open connection.

use crate::limits::{LASTED, PAUSES, PIPELINE_MAX, TIMEOUT_MAX};
use crate::resp::{self, Commands, Reply};
use options::RedisOptions;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// Reason why a command has no result.
pub(crate) enum CommandError {
    /// Redis replied with an error.
    Rejected,
    /// There was no reply in time, or no connection.
    Failed,
}

pub(crate) struct Connections {
    options: RedisOptions,
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
    commands: Commands,
    failure: Arc<Failure>,
}

/// Reports a failed connection to the task that keeps it.
#[derive(Default)]
struct Failure {
    reported: Notify,
    why: Mutex<String>,
}

/// A timeout in milliseconds, within its limit.
fn bounded(ms: u32) -> Duration {
    Duration::from_millis(ms.into()).min(TIMEOUT_MAX)
}

impl Connections {
    pub(crate) fn new(options: RedisOptions) -> Self {
        let size = options.pool_size;
        Self {
            options,
            connections: (0..size).map(|_| RedisConnection::default()).collect(),
            room: Semaphore::new(size * PIPELINE_MAX),
            turn: AtomicUsize::new(0),
            up: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            is_rejecting: AtomicBool::new(false),
        }
    }

    pub(crate) fn options(&self) -> &RedisOptions {
        &self.options
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
            let why = match timeout(bounded(self.options.connect_timeout_ms), self.connect()).await {
                Err(_) => format!("no connection within {} ms", bounded(self.options.connect_timeout_ms).as_millis()),
                Ok(Err(why)) => why,
                Ok(Ok((open, driver))) => {
                    let failure = open.failure.clone();
                    *slot.open.lock() = Some(open);
                    self.opened();
                    // Ends when the connection is closed or a command reports its failure. Dropping the driver then
                    // fails all commands in flight at once.
                    let why = tokio::select! {
                        why = driver => why,
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

    async fn connect(&self) -> Result<(OpenConnection, impl Future<Output = String>), String> {
        let RedisOptions { host, port, .. } = &self.options;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|e| self.cannot_connect(&e))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (commands, driver) = resp::open(stream);
        let mut driver = Box::pin(driver);
        tokio::select! {
            why = &mut driver => return Err(why),
            greeted = self.greet(&commands) => greeted?,
        }
        Ok((OpenConnection { commands, failure: Arc::default() }, driver))
    }

    /// Authenticates, selects the database, and waits for the reply to a PING.
    async fn greet(&self, commands: &Commands) -> Result<(), String> {
        let RedisOptions { user, password, database, .. } = &self.options;
        match (user, password) {
            (_, None) => {}
            (None, Some(password)) => send(commands, &["AUTH", password]).await?,
            (Some(user), Some(password)) => match send(commands, &["AUTH", user, password]).await {
                // A Redis before 6.0 has no users.
                Err(why) if why.contains("wrong number of arguments") => send(commands, &["AUTH", password]).await?,
                greeted => greeted?,
            },
        }
        if *database != 0 {
            send(commands, &["SELECT", &database.to_string()]).await?;
        }
        send(commands, &["PING"]).await
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
        format!("{}:{}", self.options.host, self.options.port)
    }

    /// Sends a command on one of the connections and returns the reply, which is no error.
    pub(crate) async fn ask(&self, words: &[&[u8]]) -> Result<Reply, CommandError> {
        let Ok(Ok(_room)) = timeout(bounded(self.options.wait_timeout_ms), self.room.acquire()).await else {
            return Err(CommandError::Failed);
        };
        let (first, count) = (self.turn.fetch_add(1, Relaxed), self.connections.len());
        let of = |n: usize| self.connections.get(n % count.max(1));
        let found = (0..count).filter_map(|n| of(first.wrapping_add(n))).find_map(|slot| {
            let open = slot.open.lock().clone()?;
            Some((slot, open))
        });
        let Some((slot, open)) = found else { return Err(CommandError::Failed) };
        match timeout(bounded(self.options.socket_timeout_ms), open.commands.ask(words)).await {
            Ok(Some(Reply::Error(why))) => Err(self.rejected(&why)),
            Ok(Some(reply)) => Ok(reply),
            // The driver of the connection logs the reason.
            Ok(None) => Err(CommandError::Failed),
            Err(_) => {
                let why = format!("no response within {} ms", bounded(self.options.socket_timeout_ms).as_millis());
                slot.fail(why, &open.failure);
                Err(CommandError::Failed)
            }
        }
    }

    /// Logs an error of Redis: it is full, read-only, loading, or denies access. The connection still works.
    fn rejected(&self, why: &str) -> CommandError {
        if !self.is_rejecting.swap(true, Relaxed) {
            log::warn!("the Redis of the response cache at {} rejects a command: {why}", self.address());
        }
        CommandError::Rejected
    }
}

/// Fails with the text of an error of Redis.
async fn send(commands: &Commands, words: &[&str]) -> Result<(), String> {
    let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
    match commands.ask(&words).await {
        Some(Reply::Error(why)) => Err(why),
        Some(_) => Ok(()),
        None => Err("the connection was closed".to_owned()),
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
