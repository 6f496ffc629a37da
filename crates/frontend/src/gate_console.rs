//! Checks of the gate for the console: who may open it, and which page may change settings.

use crate::access::Headers;
use crate::gate_error::GateError;
use crate::origin::{Caller, Origin};

/// Error for the console on another machine.
const REMOTE_CONSOLE: &str = "only clients on the machine of the server (loopback, without a proxy) may open the \
                              console: from another machine, use a key with the scope 'statistics' or a tunnel such as \
                              ssh -L 8000:localhost:8000, or start the server with --allow-remote-settings";

/// Error for a web page that reaches this machine by a name of its own.
const FOREIGN_HOST: &str = "the console was requested by a host name that is not of this machine, as a web page of \
                            another site could do: open it as http://localhost or http://127.0.0.1, or with a key";

/// Check of a request that shows the whole server: it comes from this machine, and not from a page of another site
/// whose name leads here, or has a secret.
pub(crate) fn check_near(
    caller: &Caller,
    has_secret: bool,
    allows_remote: bool,
    header: Headers<'_, '_>,
) -> Result<(), GateError> {
    if has_secret {
        return Ok(());
    }
    match caller.origin_of(|name| header(name, 0)) {
        Origin::Network if !allows_remote => Err(GateError::Forbidden(REMOTE_CONSOLE.into())),
        Origin::Loopback if !is_own_name(header("host", 0)) => Err(GateError::Forbidden(FOREIGN_HOST.into())),
        _ => Ok(()),
    }
}

/// Whether this origin is that of the server's own pages. A page of another site can have a name that leads to this
/// machine, and then Origin and Host agree: so the name is that of a loopback address, or the page knows a secret,
/// which browsers send for no other page.
pub(crate) fn is_own_page(origin: &[u8], has_secret: bool, header: Headers<'_, '_>) -> bool {
    let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    let is_same = match (header("host", 0), authority) {
        (Some(host), Some(authority)) => host.eq_ignore_ascii_case(authority),
        // HTTP/2, where the host is in the target.
        (None, Some(_)) => header("sec-fetch-site", 0) == Some(b"same-origin"),
        _ => false,
    };
    is_same && (has_secret || is_own_name(header("host", 0)))
}

/// Whether a Host names this machine alone. A browser needs a certificate for HTTP/2, where there is none, and no page
/// of another site has one.
fn is_own_name(host: Option<&[u8]>) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_loopback = |address: std::net::IpAddr| address.to_canonical().is_loopback();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_loopback)
}
