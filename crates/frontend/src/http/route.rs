//! The routing table of P 1.2: raw path in, operation out. No decoding, no tolerance: `/v2/` is not `/v2`.

use crate::access::Category;
use crate::gate::{Act, Ask};
use memory::RegionKind;

/// What a path asks for. Names are slices of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<'a> {
    /// Statistics of every model.
    AllStatistics,
    /// Log settings.
    Logging,
    /// Something about a model; `version` is empty when the path names none.
    Model { name: &'a str, version: &'a str, action: ModelAction },
    /// Trace settings; `model` is empty for the global ones.
    Trace { model: &'a str },
    /// Server metadata.
    ServerMetadata,
    /// Is the process there.
    Live,
    /// Is every model there.
    Ready,
    /// Shared memory; `region` is empty when the path names none.
    SharedMemory { kind: RegionKind, region: &'a str, action: RegionAction },
    /// Repository index; a repository name is accepted and ignored.
    RepositoryIndex,
    /// The description of all of these.
    OpenApi,
    /// Names of models.
    Models,
    /// A page for people, or a part of one.
    Page(Page),
    /// Load or unload.
    RepositoryModel { repository: &'a str, model: &'a str, load: bool },
}

/// A page for people, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// `/`: the server and its models.
    Home,
    /// `/docs`: shows the description of the API.
    Docs,
    /// The script of `/docs`.
    Script,
    /// The style of both.
    Style,
}

impl Page {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Home, "/"), (Self::Docs, "/docs"), (Self::Script, "/docs/page.js"), (Self::Style, "/docs/page.css")];

    /// Its path.
    pub fn path(self) -> &'static str {
        Self::ALL.iter().find(|(page, _)| *page == self).map_or("/", |(_, path)| path)
    }
}

/// What is asked about a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ModelAction {
    Metadata,
    Infer,
    Generate,
    GenerateStream,
    Ready,
    Config,
    Statistics,
}

/// What is done with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RegionAction {
    Status,
    Register,
    Unregister,
}

/// Methods a route answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// POST.
    Post,
    /// Anything else: always 405.
    Other(OtherMethod),
}

/// A method that no route takes, by its number in Triton's HTTP library: the log says it (`--log-verbose=1`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OtherMethod(pub u8);

impl Default for Method {
    fn default() -> Self {
        Self::Other(OtherMethod::default())
    }
}

impl Method {
    /// OPTIONS, which only the preflights of browsers send.
    pub const OPTIONS: Self = Self::Other(OtherMethod(8));
    /// HEAD, which pages for people answer.
    pub const HEAD: Self = Self::Other(OtherMethod(1));

    /// As it stands in the request line.
    pub fn parse(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"POST" => Self::Post,
            _ => Self::Other(OtherMethod::parse(name)),
        }
    }

    /// Its name; that of one that nobody knows is `?`.
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

impl<'a> Route<'a> {
    /// First match wins, in the order of P 1.2. `path` has no query.
    pub fn parse(path: &'a str) -> Option<Self> {
        let Some(rest) = path.strip_prefix("/v2") else {
            return Page::ALL.iter().find(|(_, of_page)| *of_page == path).map(|(page, _)| Self::Page(*page));
        };
        if rest.is_empty() {
            return Some(Self::ServerMetadata);
        }
        let (first, rest) = segment(rest)?;
        match first {
            "models" if rest.is_empty() => Some(Self::Models),
            "models" => Self::model(rest),
            "health" => match rest {
                "/live" => Some(Self::Live),
                "/ready" => Some(Self::Ready),
                _ => None,
            },
            "logging" => rest.is_empty().then_some(Self::Logging),
            "openapi.json" => rest.is_empty().then_some(Self::OpenApi),
            "trace" => (rest == "/setting").then_some(Self::Trace { model: "" }),
            "repository" => Self::repository(rest),
            "systemsharedmemory" => Self::region(RegionKind::System, rest),
            "cudasharedmemory" => Self::region(RegionKind::Cuda, rest),
            _ => None,
        }
    }

    fn model(rest: &'a str) -> Option<Self> {
        if rest == "/stats" {
            return Some(Self::AllStatistics);
        }
        let (name, rest) = segment(rest)?;
        if rest == "/trace/setting" {
            return Some(Self::Trace { model: name });
        }
        let (version, rest) = match rest.strip_prefix("/versions") {
            Some(rest) => {
                let (version, rest) = segment(rest)?;
                if !version.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                (version, rest)
            }
            None => ("", rest),
        };
        let action = match rest {
            "" => ModelAction::Metadata,
            "/infer" => ModelAction::Infer,
            "/generate" => ModelAction::Generate,
            "/generate_stream" => ModelAction::GenerateStream,
            "/ready" => ModelAction::Ready,
            "/config" => ModelAction::Config,
            "/stats" => ModelAction::Statistics,
            _ => return None,
        };
        Some(Self::Model { name, version, action })
    }

    fn repository(rest: &'a str) -> Option<Self> {
        // `/index` and `/models/…` come first: a repository called `models` cannot be named, as in Triton.
        if rest == "/index" {
            return Some(Self::RepositoryIndex);
        }
        if let Some(found) = Self::repository_model("", rest) {
            return Some(found);
        }
        let (repository, rest) = segment(rest)?;
        if rest == "/index" {
            return Some(Self::RepositoryIndex);
        }
        Self::repository_model(repository, rest)
    }

    fn repository_model(repository: &'a str, rest: &'a str) -> Option<Self> {
        let (model, action) = segment(rest.strip_prefix("/models")?)?;
        let load = match action {
            "/load" => true,
            "/unload" => false,
            _ => return None,
        };
        Some(Self::RepositoryModel { repository, model, load })
    }

    fn region(kind: RegionKind, rest: &'a str) -> Option<Self> {
        let (region, rest) = match rest.strip_prefix("/region") {
            Some(rest) => segment(rest)?,
            None => ("", rest),
        };
        let action = match rest {
            "/status" => RegionAction::Status,
            "/register" => RegionAction::Register,
            "/unregister" => RegionAction::Unregister,
            _ => return None,
        };
        Some(Self::SharedMemory { kind, region, action })
    }

    /// What has to be unlocked for it.
    pub fn category(&self) -> Category {
        match self {
            Self::AllStatistics => Category::Statistics,
            Self::Logging => Category::Logging,
            Self::Trace { .. } => Category::Trace,
            Self::ServerMetadata | Self::OpenApi => Category::Metadata,
            // Files that are the same on every server.
            Self::Page(Page::Docs | Page::Script | Page::Style) => Category::Metadata,
            Self::Live | Self::Ready => Category::Health,
            Self::SharedMemory { .. } => Category::SharedMemory,
            Self::RepositoryIndex | Self::RepositoryModel { .. } | Self::Models | Self::Page(Page::Home) => {
                Category::ModelRepository
            }
            Self::Model { action, .. } => match action {
                ModelAction::Metadata => Category::Metadata,
                ModelAction::Infer | ModelAction::Generate | ModelAction::GenerateStream => Category::Inference,
                ModelAction::Ready => Category::Health,
                ModelAction::Config => Category::ModelConfig,
                ModelAction::Statistics => Category::Statistics,
            },
        }
    }

    /// What the gate is asked. What a method asks that the route does not take is not looked at: reading is the least.
    pub fn ask(&self, method: Method) -> Ask<'a> {
        let act = match self {
            Self::Logging | Self::Trace { .. } if method == Method::Post => Act::Write,
            Self::RepositoryModel { .. } => Act::Write,
            Self::SharedMemory { action: RegionAction::Register | RegionAction::Unregister, .. } => Act::Write,
            _ => Act::Read,
        };
        let model = match *self {
            Self::Model { name, .. } => Some(name),
            Self::Trace { model } => (!model.is_empty()).then_some(model),
            Self::RepositoryModel { model, .. } => Some(model),
            _ => None,
        };
        Ask { category: self.category(), act, model }
    }

    /// Whether it answers this method.
    pub fn allows(&self, method: Method) -> bool {
        use ModelAction::{Generate, GenerateStream, Infer};
        match self {
            Self::Logging | Self::Trace { .. } => !matches!(method, Method::Other(_)),
            Self::RepositoryIndex | Self::RepositoryModel { .. } => method == Method::Post,
            Self::Model { action: Infer | Generate | GenerateStream, .. } => method == Method::Post,
            Self::SharedMemory { action: RegionAction::Register | RegionAction::Unregister, .. } => {
                method == Method::Post
            }
            Self::Models | Self::Page(_) => matches!(method, Method::Get | Method::HEAD),
            _ => method == Method::Get,
        }
    }
}

/// One form of a path that is served, for descriptions of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// With its names in braces: `{model}`, `{version}`, `{region}`.
    pub template: &'static str,
    /// `GET`, `POST`.
    pub methods: Vec<&'static str>,
    /// What a restriction calls it.
    pub category: &'static str,
}

/// Every form of a path that [`Route::parse`] takes, but parts of a page, and those with a repository's name, which are refused or mean the same
/// without.
const TEMPLATES: [&str; 38] = [
    "/",
    "/docs",
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/openapi.json",
    "/v2/models",
    "/v2/models/stats",
    "/v2/models/{model}",
    "/v2/models/{model}/config",
    "/v2/models/{model}/generate",
    "/v2/models/{model}/generate_stream",
    "/v2/models/{model}/infer",
    "/v2/models/{model}/ready",
    "/v2/models/{model}/stats",
    "/v2/models/{model}/trace/setting",
    "/v2/models/{model}/versions/{version}",
    "/v2/models/{model}/versions/{version}/config",
    "/v2/models/{model}/versions/{version}/generate",
    "/v2/models/{model}/versions/{version}/generate_stream",
    "/v2/models/{model}/versions/{version}/infer",
    "/v2/models/{model}/versions/{version}/ready",
    "/v2/models/{model}/versions/{version}/stats",
    "/v2/repository/index",
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
    "/v2/systemsharedmemory/status",
    "/v2/systemsharedmemory/unregister",
    "/v2/systemsharedmemory/region/{region}/register",
    "/v2/systemsharedmemory/region/{region}/status",
    "/v2/systemsharedmemory/region/{region}/unregister",
    "/v2/cudasharedmemory/status",
    "/v2/cudasharedmemory/unregister",
    "/v2/cudasharedmemory/region/{region}/register",
    "/v2/cudasharedmemory/region/{region}/status",
    "/v2/cudasharedmemory/region/{region}/unregister",
    "/v2/trace/setting",
    "/v2/logging",
];

/// The routing table, read out: what it takes and how, asked of [`Route`] itself.
pub fn described() -> Vec<Described> {
    let one = |template: &'static str| {
        let path = template.replace("{model}", "m").replace("{version}", "1").replace("{region}", "r");
        let route = Route::parse(&path)?;
        let methods = [("GET", Method::Get), ("POST", Method::Post)];
        let methods = methods.iter().filter(|(_, method)| route.allows(*method)).map(|(name, _)| *name).collect();
        Some(Described { template, methods, category: route.category().name() })
    };
    TEMPLATES.iter().filter_map(|template| one(template)).collect()
}

/// Splits `/segment/rest` into `segment` and `/rest`; an empty segment is none.
fn segment(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    let end = memchr::memchr(b'/', path.as_bytes()).unwrap_or(path.len());
    let (segment, rest) = path.split_at(end);
    (!segment.is_empty()).then_some((segment, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model<'a>(name: &'a str, version: &'a str, action: ModelAction) -> Option<Route<'a>> {
        Some(Route::Model { name, version, action })
    }

    #[test]
    fn p005_every_path_of_the_table_and_none_beside_it() {
        use ModelAction::{Config, Generate, GenerateStream, Infer, Metadata, Ready, Statistics};
        use RegionAction::{Register, Status, Unregister};
        let shm = |kind, region, action| Some(Route::SharedMemory { kind, region, action });
        let control = |repository, model, load| Some(Route::RepositoryModel { repository, model, load });
        for (path, expected) in [
            ("/v2", Some(Route::ServerMetadata)),
            ("/v2/", None),
            ("/V2", None),
            ("/v2/models", Some(Route::Models)),
            ("/", Some(Route::Page(Page::Home))),
            ("", None),
            ("//", None),
            ("/docs", Some(Route::Page(Page::Docs))),
            ("/docs/", None),
            ("/docs/page.js", Some(Route::Page(Page::Script))),
            ("/docs/page.css", Some(Route::Page(Page::Style))),
            ("/docs/../v2", None),
            ("/v2/models/", None),
            ("/v2/models/stats", Some(Route::AllStatistics)),
            ("/v2/models/stats/stats", model("stats", "", Statistics)),
            ("/v2/models/stats/config", model("stats", "", Config)),
            ("/v2/models/m", model("m", "", Metadata)),
            ("/v2/models/m/", None),
            ("/v2/models/m/versions", None),
            ("/v2/models/m/versions/", None),
            ("/v2/models/m/versions/1", model("m", "1", Metadata)),
            ("/v2/models/m/versions/01/ready", model("m", "01", Ready)),
            ("/v2/models/m/versions/x", None),
            ("/v2/models/m/versions/-1", None),
            ("/v2/models/m/versions/1/versions/1", None),
            ("/v2/models/m/infer", model("m", "", Infer)),
            ("/v2/models/m/versions/2/infer", model("m", "2", Infer)),
            ("/v2/models/m/generate", model("m", "", Generate)),
            ("/v2/models/m/generate_stream", model("m", "", GenerateStream)),
            ("/v2/models/m/ready", model("m", "", Ready)),
            ("/v2/models//ready", None),
            ("/v2/models/m/trace/setting", Some(Route::Trace { model: "m" })),
            ("/v2/models/m/versions/1/trace/setting", None),
            ("/v2/trace/setting", Some(Route::Trace { model: "" })),
            ("/v2/trace", None),
            ("/v2/logging", Some(Route::Logging)),
            ("/v2/logging/", None),
            ("/v2/openapi.json", Some(Route::OpenApi)),
            ("/v2/openapi.json/", None),
            ("/v2/health/live", Some(Route::Live)),
            ("/v2/health/ready", Some(Route::Ready)),
            ("/v2/health/LIVE", None),
            ("/v2//health/live", None),
            ("//v2/health/live", None),
            ("/v2/systemsharedmemory", None),
            ("/v2/systemsharedmemory/status", shm(RegionKind::System, "", Status)),
            ("/v2/systemsharedmemory/register", shm(RegionKind::System, "", Register)),
            ("/v2/systemsharedmemory/region/r/unregister", shm(RegionKind::System, "r", Unregister)),
            ("/v2/systemsharedmemory/region//status", None),
            ("/v2/cudasharedmemory/region/r/status", shm(RegionKind::Cuda, "r", Status)),
            ("/v2/repository", None),
            ("/v2/repository/", None),
            ("/v2/repository/index", Some(Route::RepositoryIndex)),
            ("/v2/repository/foo/index", Some(Route::RepositoryIndex)),
            ("/v2/repository/models/m/load", control("", "m", true)),
            ("/v2/repository/models/m/unload", control("", "m", false)),
            ("/v2/repository/foo/models/m/load", control("foo", "m", true)),
            ("/metrics", None),
        ] {
            assert_eq!(Route::parse(path), expected, "{path}");
        }
    }

    /// The number of a kind of route: a new one does not compile until it has its own, and does not pass until it has a template.
    fn kind(route: Route<'_>) -> usize {
        match route {
            Route::AllStatistics => 0,
            Route::Logging => 1,
            Route::Trace { model } => 2 + usize::from(model.is_empty()),
            Route::ServerMetadata => 4,
            Route::Live => 5,
            Route::Ready => 6,
            Route::RepositoryIndex => 7,
            Route::OpenApi => 8,
            Route::RepositoryModel { load, .. } => 9 + usize::from(load),
            Route::SharedMemory { kind, region, action } => {
                let kind = usize::from(kind == RegionKind::System);
                let action = match action {
                    RegionAction::Status => 0,
                    RegionAction::Register => 1,
                    RegionAction::Unregister => 2,
                };
                11 + kind + 2 * usize::from(region.is_empty()) + 4 * action
            }
            Route::Model { version, action, .. } => {
                let action = match action {
                    ModelAction::Metadata => 0,
                    ModelAction::Infer => 1,
                    ModelAction::Generate => 2,
                    ModelAction::GenerateStream => 3,
                    ModelAction::Ready => 4,
                    ModelAction::Config => 5,
                    ModelAction::Statistics => 6,
                };
                23 + action + 7 * usize::from(version.is_empty())
            }
            Route::Models => 37,
            Route::Page(page) => 38 + page as usize,
        }
    }

    #[test]
    fn every_route_is_described_once() {
        let described = described();
        assert_eq!(described.len(), TEMPLATES.len(), "a template that is no route");
        let mut kinds: Vec<usize> = TEMPLATES
            .iter()
            .map(|t| t.replace("{model}", "m").replace("{version}", "1").replace("{region}", "r"))
            .map(|path| kind(Route::parse(&path).unwrap()))
            .collect();
        kinds.sort_unstable();
        // A region cannot be registered without its name: refused, and so not described.
        let nameless = [RegionKind::Cuda, RegionKind::System]
            .map(|kind| self::kind(Route::SharedMemory { kind, region: "", action: RegionAction::Register }));
        // Without the parts of pages.
        let expected: Vec<usize> = (0..40).filter(|kind| !nameless.contains(kind)).collect();
        assert_eq!(kinds, expected);
        assert!(described.iter().all(|one| !one.methods.is_empty()));
    }

    #[test]
    fn p006_methods() {
        for (path, allowed) in [
            ("/v2", "G"),
            ("/v2/health/live", "G"),
            ("/v2/models/m", "G"),
            ("/v2/models/m/infer", "P"),
            ("/v2/models/m/generate", "P"),
            ("/v2/models/m/stats", "G"),
            ("/v2/logging", "GP"),
            ("/v2/trace/setting", "GP"),
            ("/v2/repository/index", "P"),
            ("/v2/repository/models/m/load", "P"),
            ("/v2/systemsharedmemory/status", "G"),
            ("/v2/systemsharedmemory/unregister", "P"),
            ("/v2/models", "GH"),
            ("/", "GH"),
            ("/docs", "GH"),
        ] {
            let route = Route::parse(path).unwrap();
            assert_eq!(route.allows(Method::Get), allowed.contains('G'), "GET {path}");
            assert_eq!(route.allows(Method::Post), allowed.contains('P'), "POST {path}");
            assert_eq!(route.allows(Method::parse(b"HEAD")), allowed.contains('H'), "HEAD {path}");
            assert!(!route.allows(Method::parse(b"PUT")), "PUT {path}");
            assert_eq!(Method::parse(b"OPTIONS"), Method::OPTIONS);
        }
    }
}
