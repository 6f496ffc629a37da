//! Notifications to a service manager such as systemd and sockets from it (`sd_notify`, `sd_listen_fds`).

use crate::failure::{Result, thrown};
use crate::objects::GivenSocket;
use napi_derive::napi;
use std::io;
use std::os::unix::net::UnixDatagram;

/// Sends one message, such as `READY=1`. `socket` is the value of NOTIFY_SOCKET: a path, or `@` and an abstract name.
/// Never blocks: if the manager does not read, the message is lost and an error returned.
#[napi]
pub fn notify(socket: String, message: String) -> napi::Result<()> {
    let sent = send(&socket, message.as_bytes());
    sent.map_err(|e| napi::Error::from_reason(format!("can not notify the service manager at '{socket}': {e}")))
}

fn send(socket: &str, message: &[u8]) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    match socket.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            sender.send_to_addr(message, &address)?;
        }
        #[cfg(not(target_os = "linux"))]
        Some(_) => return Err(io::ErrorKind::Unsupported.into()),
        None => {
            sender.send_to(message, socket)?;
        }
    }
    Ok(())
}

/// Describes a descriptor from the service manager; programs that are started from here do not inherit it.
#[napi]
pub fn describe_socket(fd: i32) -> Result<GivenSocket> {
    let found = frontend::given::describe(fd).map_err(|e| thrown(&e))?;
    Ok(GivenSocket {
        family: found.family.into(),
        is_stream: found.is_stream,
        is_listening: found.is_listening,
        port: found.port,
    })
}
