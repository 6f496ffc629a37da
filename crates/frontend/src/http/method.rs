//! Methods of HTTP, with the numbers of Triton's library for those that no route takes.

/// Method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    /// Any other method: 405, except where HEAD or OPTIONS is served.
    Other(OtherMethod),
}

/// A method by its number in Triton's HTTP library, for the log (`--log-verbose=1`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OtherMethod(pub u8);

impl Default for Method {
    fn default() -> Self {
        Self::Other(OtherMethod::default())
    }
}

impl Method {
    /// OPTIONS, for CORS preflights only.
    pub const OPTIONS: Self = Self::Other(OtherMethod(8));
    /// HEAD, for pages only.
    pub const HEAD: Self = Self::Other(OtherMethod(1));

    /// Parses the method of a request line.
    pub fn parse(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"POST" => Self::Post,
            _ => Self::Other(OtherMethod::parse(name)),
        }
    }

    /// Name of the method; `?` if it is unknown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Other(method) => method.name(),
        }
    }
}

impl OtherMethod {
    /// From 1 on; 0 is GET.
    const NAMES: [&'static [u8]; 15] = [
        b"HEAD",
        b"POST",
        b"PUT",
        b"DELETE",
        b"MKCOL",
        b"COPY",
        b"MOVE",
        b"OPTIONS",
        b"PROPFIND",
        b"PROPPATCH",
        b"LOCK",
        b"UNLOCK",
        b"TRACE",
        b"CONNECT",
        b"PATCH",
    ];

    fn name(self) -> &'static str {
        let name = usize::from(self.0).checked_sub(1).and_then(|at| Self::NAMES.get(at));
        name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or("?")
    }

    fn parse(name: &[u8]) -> Self {
        let unknown = Self::NAMES.len();
        Self(Self::NAMES.iter().position(|&known| known == name).unwrap_or(unknown) as u8 + 1)
    }
}
