//! Who may ask for what. Both front ends ask here, once the head of a request is there and before its body is read.
//!
//! Not here: what a key may do.
//!
//! Invariant: without a flag a request that only reads costs one branch.

use crate::access::{Category, Restrictions};
use crate::origin::Caller;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tensor::Error;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing of the server changes. An inference is one of these.
    Read,
    /// The server changes: load, unload, register, unregister, settings.
    Write,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Kind of the operation.
    pub category: Category,
    /// What it does.
    pub act: Act,
    /// The model it names, as far as that is known before its body is read.
    pub model: Option<&'a str>,
}

/// What a permitted request carries along until the last byte of its answer was written. Copies share one thing, which ends with
/// the last of them.
#[derive(Debug, Clone, Default)]
pub struct Grant(Option<Arc<Granted>>);

#[derive(Debug, Default)]
struct Granted {
    /// It showed the header that its category asks for.
    has_shown: bool,
    /// The key's name.
    key: Option<Arc<str>>,
}

impl Grant {
    /// Name of the key that was shown, for logs.
    pub fn key(&self) -> Option<&Arc<str>> {
        self.0.as_ref()?.key.as_ref()
    }

    /// The same bytes, which keep the grant for as long as they are there: an answer is written long after it was made.
    pub fn hold(&self, part: Bytes) -> Bytes {
        match &self.0 {
            None => part,
            Some(granted) => Bytes::from_owner(Held { part, _granted: granted.clone() }),
        }
    }

    /// The second step of the gate, for a call whose message says which model it is about.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    #[inline]
    pub fn admit_model(&self, model: &str) -> Result<(), Refusal> {
        match &self.0 {
            None => Ok(()),
            Some(granted) => granted.admit_model(model),
        }
    }

    /// Whether it holds anything.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl Granted {
    #[cold]
    fn admit_model(&self, _model: &str) -> Result<(), Refusal> {
        Ok(())
    }
}

struct Held {
    part: Bytes,
    _granted: Arc<Granted>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A restricted API of Triton, and its header was not there or another.
    Restricted {
        /// `API` over HTTP, `protocol` over gRPC.
        noun: &'static str,
        /// The header, as it was configured.
        header: Arc<str>,
    },
    /// A key is asked for, and none that is known was shown.
    Unauthenticated,
    /// The caller is known, or is where it is, and may not do this: the reason.
    Forbidden(Cow<'static, str>),
    /// The verb is answered at another address.
    NotHere {
        /// `--control-address`.
        address: Arc<str>,
    },
    /// A quota of the key is used up: the reason, and when there is room again.
    Exhausted {
        /// Which.
        reason: Cow<'static, str>,
        /// Time until it is worth another try.
        retry_after: Duration,
    },
}

impl Refusal {
    /// What the client is told.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Restricted { noun, header } => {
                format!("This {noun} is restricted, expecting header '{header}'").into()
            }
            Self::Unauthenticated => "this server asks for a key: 'Authorization: Bearer <key>'".into(),
            Self::Forbidden(reason) | Self::Exhausted { reason, .. } => Cow::Borrowed(reason),
            Self::NotHere { address } => {
                format!("operations that manage this server are answered at its control address, {address}").into()
            }
        }
    }

    /// Status over HTTP.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Restricted { .. } | Self::Forbidden(_) | Self::NotHere { .. } => 403,
            Self::Unauthenticated => 401,
            Self::Exhausted { .. } => 429,
        }
    }

    /// Number over gRPC.
    pub fn grpc_status(&self) -> u8 {
        match self {
            // As Triton.
            Self::Restricted { .. } => 14,
            Self::Forbidden(_) | Self::NotHere { .. } => 7,
            Self::Unauthenticated => 16,
            Self::Exhausted { .. } => 8,
        }
    }

    /// When to try again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Exhausted { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

/// In a stream a refusal is a message, which has no place for more than a text.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::Exhausted { .. } => Self::exhausted(refusal.text().into_owned()),
            _ => Self::unavailable(refusal.text().into_owned()),
        }
    }
}

/// A header of a request, by its name in lower case; the first of several.
pub type Headers<'h, 'a> = &'h dyn Fn(&str) -> Option<&'a [u8]>;

/// What one front end asks of its callers.
#[derive(Debug)]
pub struct Gate {
    /// `None` unless something is asked even of those who only read.
    guards: Option<Box<Guards>>,
}

#[derive(Debug)]
struct Guards {
    /// What a category is called where it is refused.
    noun: &'static str,
    restrictions: Restrictions,
}

impl Gate {
    /// Of a front end, which calls a category an `API` or a `protocol`.
    pub fn new(noun: &'static str, restrictions: Restrictions) -> Self {
        let guards = (!restrictions.is_empty()).then(|| Box::new(Guards { noun, restrictions }));
        Self { guards }
    }

    /// Whether a request may go on, before its body is read. `header` finds a header by its name in lower case.
    ///
    /// # Errors
    /// Why it may not.
    #[inline]
    pub fn admit<'a>(
        &self,
        caller: &Caller,
        ask: &Ask<'_>,
        header: impl Fn(&str) -> Option<&'a [u8]>,
    ) -> Result<Grant, Refusal> {
        match (&self.guards, ask.act) {
            (None, Act::Read) => Ok(Grant::default()),
            _ => self.examine(caller, ask, &header),
        }
    }

    #[cold]
    fn examine(&self, _caller: &Caller, ask: &Ask<'_>, header: Headers<'_, '_>) -> Result<Grant, Refusal> {
        let mut granted = Granted::default();
        if let Some(guards) = &self.guards
            && let Some(rule) = guards.restrictions.rule(ask.category)
        {
            if !rule.admits(header(&rule.name)) {
                return Err(Refusal::Restricted { noun: guards.noun, header: rule.header.clone() });
            }
            granted.has_shown = true;
        }
        let has_any = granted.has_shown || granted.key.is_some();
        Ok(Grant(has_any.then(|| Arc::new(granted))))
    }

    /// The second step, for a call whose message says that it changes something.
    ///
    /// # Errors
    /// As `admit`.
    pub fn admit_change(
        &self,
        _caller: &Caller,
        _grant: &Grant,
        _ask: &Ask<'_>,
        _header: Headers<'_, '_>,
    ) -> Result<(), Refusal> {
        Ok(())
    }
}
