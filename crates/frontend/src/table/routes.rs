//! The routing table of P 1.2, with the OpenAPI documentation of each route.

use super::paths::Pattern;
use crate::endpoints::{
    chat, classify, cohere_embed, config, console, embeddings, generate, health, index, infer, invocations, load,
    metadata, model_why, models, openapi, pages, regions, rerank, score, settings, statistics, tei, text_models,
    unload, why,
};
use crate::exchange::{EndpointRef, Route};
use crate::http::method::Method;
use memory::RegionKind;
use std::sync::LazyLock;

/// A row of the table.
#[derive(Clone, Copy)]
pub struct RouteRow {
    /// `Get` or `Post`.
    pub method: Method,
    /// Whether HEAD is answered as well.
    takes_head: bool,
    /// The path, with names in braces and an optional part in brackets. A `{version}` has digits only.
    pub path: &'static str,
    pub endpoint: EndpointRef,
    /// Entry in the OpenAPI document; `None` leaves the route out.
    pub documentation: Option<Documentation>,
}

/// Entry of a route in the OpenAPI document. Schemas are named as in `src/api/openapi/schemas.ts`.
#[derive(Debug, Clone, Copy)]
pub struct Documentation {
    /// `operationId`.
    pub id: &'static str,
    pub summary: &'static str,
    /// Schema of the request body; `None` = no body.
    pub request: Option<&'static str>,
    /// Schema of the response body; `None` = no body.
    pub response: Option<&'static str>,
    pub form: Form,
}

/// Form of request and response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    /// JSON; the request body is optional.
    OptionalBody,
    /// JSON, which binary tensors may follow.
    Tensors,
    /// JSON request; the response is a stream of server-sent events.
    Events,
    /// HTML response, at least for clients that accept it.
    Page,
}

const fn row(method: Method, path: &'static str, endpoint: EndpointRef) -> RouteRow {
    RouteRow { method, takes_head: false, path, endpoint, documentation: None }
}

const fn get(path: &'static str, endpoint: EndpointRef) -> RouteRow {
    row(Method::Get, path, endpoint)
}

pub(crate) const fn post(path: &'static str, endpoint: EndpointRef) -> RouteRow {
    row(Method::Post, path, endpoint)
}

impl RouteRow {
    const fn with_head(mut self) -> Self {
        self.takes_head = true;
        self
    }

    /// Adds documentation without bodies.
    const fn doc(mut self, id: &'static str, summary: &'static str) -> Self {
        self.documentation = Some(Documentation { id, summary, request: None, response: None, form: Form::Json });
        self
    }

    const fn takes(mut self, schema: &'static str) -> Self {
        if let Some(documentation) = &mut self.documentation {
            documentation.request = Some(schema);
        }
        self
    }

    const fn answers(mut self, schema: &'static str) -> Self {
        if let Some(documentation) = &mut self.documentation {
            documentation.response = Some(schema);
        }
        self
    }

    const fn form(mut self, form: Form) -> Self {
        if let Some(documentation) = &mut self.documentation {
            documentation.form = form;
        }
        self
    }
}

/// The first row that matches a path answers it. Inferences are first, as they are most frequent; otherwise the order
/// counts only for `/v2/models/stats`, which is not a model. Rows with a repository reject its name or ignore it.
pub static ROWS: [RouteRow; 69] = [
    post("/v2/models/{model}[/versions/{version}]/infer", &infer::Infer)
        .doc("modelInfer", "Infer.")
        .takes("InferRequest")
        .answers("InferResponse")
        .form(Form::Tensors),
    post("/v2/models/{model}[/versions/{version}]/generate", &generate::Generate { streams: false })
        .doc("modelGenerate", "Infer with inputs by name; one response.")
        .takes("GenerateRequest")
        .answers("GenerateResponse"),
    post("/v2/models/{model}[/versions/{version}]/generate_stream", &generate::Generate { streams: true })
        .doc("modelGenerateStream", "Infer with inputs by name; a stream of responses.")
        .takes("GenerateRequest")
        .answers("GenerateResponse")
        .form(Form::Events),
    post("/v1/chat/completions", &chat::CHAT)
        .doc("chatCompletions", "Continue a conversation, in OpenAI's form; with stream, as server-sent events.")
        .takes("ChatRequest")
        .answers("ChatAnswer"),
    post("/v1/completions", &chat::COMPLETIONS)
        .doc("completions", "Continue a text, in OpenAI's form; with stream, as server-sent events.")
        .takes("CompletionRequest")
        .answers("CompletionAnswer"),
    post("/v1/responses", &chat::RESPONSES)
        .doc(
            "responses",
            "Continue a conversation, in the form of OpenAI's Responses without its state; with stream, as \
             server-sent events.",
        )
        .takes("ResponsesRequest")
        .answers("ResponsesAnswer"),
    post("/v1/embeddings", &embeddings::ENDPOINT)
        .doc("embeddings", "Embed texts or token ids, in OpenAI's form.")
        .takes("EmbeddingsRequest")
        .answers("EmbeddingsAnswer"),
    post("/v2/embed", &cohere_embed::ENDPOINT)
        .doc("cohereEmbed", "Embed texts, in Cohere's form.")
        .takes("EmbedRequest")
        .answers("EmbedAnswer"),
    post("/v1/rerank", &rerank::ENDPOINT)
        .doc("rerank", "Rank documents by their relevance to a query, in the form of Cohere, Jina and vLLM.")
        .takes("RerankRequest")
        .answers("RerankAnswer"),
    post("/rerank", &rerank::ENDPOINT)
        .doc(
            "rerankOrTei",
            "Rank documents like /v1/rerank. With texts instead of documents, the request and its response have TEI's \
             form.",
        )
        .takes("RerankRequest")
        .answers("RerankAnswer"),
    post("/v2/rerank", &rerank::SECOND)
        .doc(
            "cohereRerank",
            "Rank documents like /v1/rerank; results have no documents unless return_documents is true.",
        )
        .takes("RerankRequest")
        .answers("RerankAnswer"),
    post("/v1/score", &score::ENDPOINT)
        .doc("score", "Scores of pairs of texts, in vLLM's form.")
        .takes("ScoreRequest")
        .answers("ScoreAnswer"),
    post("/score", &score::ENDPOINT),
    post("/v1/classify", &classify::ENDPOINT)
        .doc("classify", "Classes of texts, in vLLM's form.")
        .takes("ClassifyRequest")
        .answers("ClassifyAnswer"),
    post("/classify", &classify::ENDPOINT),
    get("/v1/models", &text_models::LIST)
        .doc("textModels", "Models that text endpoints can use, and their aliases.")
        .answers("ModelList"),
    get("/v1/models/{model}", &text_models::ONE)
        .doc("textModel", "A model that text endpoints can use, or an alias of one.")
        .answers("ModelItem"),
    post("/v1/models/{model}/load", &text_models::LOAD)
        .doc("textModelLoad", "Load a model that does not serve, as Triton's OpenAI front end does.")
        .answers("ModelItem"),
    post("/v1/models/{model}/unload", &text_models::UNLOAD)
        .doc("textModelUnload", "Unload a model, as Triton's OpenAI front end does.")
        .answers("Unloaded"),
    get("/metrics", &text_models::METRICS),
    get("/health/ready", &health::OpenAiReady),
    post("/embed", &tei::EMBED)
        .doc("teiEmbed", "Embed texts, in TEI's form.")
        .takes("InputsRequest")
        .answers("EmbedRows"),
    post("/predict", &tei::PREDICT)
        .doc("teiPredict", "Classes of texts, in TEI's form. For a single text the response has no outer list.")
        .takes("InputsRequest")
        .answers("Predictions"),
    post("/tokenize", &tei::TOKENIZE)
        .doc("teiTokenize", "Tokens of texts, in TEI's form.")
        .takes("InputsRequest")
        .answers("Tokens"),
    get("/info", &tei::INFO).doc("teiInfo", "The model that TEI's routes use.").answers("Info"),
    get("/health", &health::ServerReady),
    post("/invocations", &invocations::ENDPOINT),
    get("/v2/health/live", &health::ServerLive)
        .doc(
            "serverLive",
            "Whether the server runs: status 200 if it does. The response has a body only if Accept names \
                application/json.",
        )
        .answers("Live"),
    get("/v2/health/ready", &health::ServerReady)
        .doc(
            "serverReady",
            "Whether the server and its models are ready: status 200 if they are. The response has a body only if \
                Accept names application/json.",
        )
        .answers("Ready"),
    get("/", &pages::Home)
        .with_head()
        .doc("home", "The server and its models, as HTML if Accept names text/html, otherwise as JSON.")
        .answers("Home")
        .form(Form::Page),
    get("/docs", &pages::StaticPage::PAGE)
        .with_head()
        .doc("docs", "A page that shows this description.")
        .form(Form::Page),
    get("/console", &pages::StaticPage::PAGE)
        .with_head()
        .doc("console", "A page that shows the server live.")
        .form(Form::Page),
    get("/app/console.js", &pages::StaticPage::SCRIPT).with_head(),
    get("/app/console.css", &pages::StaticPage::STYLE).with_head(),
    get("/console/events", &console::ConsoleEvents),
    get("/v2", &metadata::ServerMetadata)
        .doc("serverMetadata", "Name, version and extensions of the server.")
        .answers("ServerMetadata"),
    get("/v2/openapi.json", &openapi::OpenApi)
        .doc(
            "openApi",
            "This description. With ?model=NAME, the description of one model with the names, types and shapes of \
                its tensors.",
        )
        .answers("Description"),
    get("/v2/models", &models::Models)
        .with_head()
        .doc("models", "Names of all models of the repository, loaded or not.")
        .answers("Models"),
    get("/v2/models/stats", &statistics::Statistics)
        .doc("statistics", "Statistics of all models.")
        .answers("Statistics"),
    get("/v2/why", &why::PastRequests)
        .doc(
            "pastRequests",
            "Records of the slowest inferences of the last 15 minutes and of those that failed, by cause. With \
                ?id=ID, the records of the requests with this id.",
        )
        .answers("PastRequests"),
    get("/v2/models/{model}[/versions/{version}]", &metadata::ModelMetadata)
        .doc("modelMetadata", "Versions and tensors of a model.")
        .answers("ModelMetadata"),
    get("/v2/models/{model}[/versions/{version}]/config", &config::ModelConfig)
        .doc("modelConfig", "The effective configuration of a model.")
        .answers("ModelConfig"),
    get("/v2/models/{model}[/versions/{version}]/ready", &health::ModelReady)
        .doc("modelReady", "Whether a model is ready: status 200 if it is."),
    get("/v2/models/{model}[/versions/{version}]/stats", &statistics::Statistics)
        .doc("modelStatistics", "Statistics of a model.")
        .answers("Statistics"),
    get("/v2/models/{model}[/versions/{version}]/why", &model_why::ModelWhy)
        .doc(
            "modelWhy",
            "Where requests to a model spent their time in the last minutes, and which changes would help. \
                ?simulate=instances:2 replays these requests with that change; delay_us, max_batch_size and threads \
                work as well.",
        )
        .answers("ModelWhy"),
    get("/v2/models/{model}/trace/setting", &settings::TraceSettings { changes: false })
        .doc("modelTraceSettings", "Trace settings of a model.")
        .answers("TraceSettings"),
    post("/v2/models/{model}/trace/setting", &settings::TraceSettings { changes: true })
        .doc("updateModelTraceSettings", "Change trace settings of a model.")
        .takes("TraceSettings")
        .answers("TraceSettings"),
    post("/v2/repository/index", &index::Index)
        .doc("repositoryIndex", "Models of the repository and their states.")
        .takes("IndexRequest")
        .answers("Index")
        .form(Form::OptionalBody),
    post("/v2/repository/models/{model}/load", &load::Load)
        .doc("loadModel", "Load a model, or load it again.")
        .takes("LoadRequest")
        .form(Form::OptionalBody),
    post("/v2/repository/models/{model}/unload", &unload::Unload)
        .doc("unloadModel", "Unload a model.")
        .takes("UnloadRequest")
        .form(Form::OptionalBody),
    post("/v2/repository/{repository}/index", &index::Index),
    post("/v2/repository/{repository}/models/{model}/load", &load::Load),
    post("/v2/repository/{repository}/models/{model}/unload", &unload::Unload),
    get("/v2/systemsharedmemory/status", &regions::Status(RegionKind::System))
        .doc("systemRegions", "Regions of system shared memory.")
        .answers("SystemRegions"),
    post("/v2/systemsharedmemory/unregister", &regions::Unregister(RegionKind::System))
        .doc("unregisterSystemRegions", "Unregister all regions of system shared memory."),
    post("/v2/systemsharedmemory/region/{region}/register", &regions::Register(RegionKind::System))
        .doc("registerSystemRegion", "Register a region of system shared memory.")
        .takes("SystemRegion"),
    get("/v2/systemsharedmemory/region/{region}/status", &regions::Status(RegionKind::System))
        .doc("systemRegion", "One region of system shared memory.")
        .answers("SystemRegions"),
    post("/v2/systemsharedmemory/region/{region}/unregister", &regions::Unregister(RegionKind::System))
        .doc("unregisterSystemRegion", "Unregister a region of system shared memory."),
    // Always rejected, as a region needs a name, and so not documented.
    post("/v2/systemsharedmemory/register", &regions::Register(RegionKind::System)),
    get("/v2/cudasharedmemory/status", &regions::Status(RegionKind::Cuda))
        .doc("cudaRegions", "Regions of CUDA shared memory.")
        .answers("CudaRegions"),
    post("/v2/cudasharedmemory/unregister", &regions::Unregister(RegionKind::Cuda))
        .doc("unregisterCudaRegions", "Unregister all regions of CUDA shared memory."),
    post("/v2/cudasharedmemory/region/{region}/register", &regions::Register(RegionKind::Cuda))
        .doc("registerCudaRegion", "Register a region of CUDA shared memory.")
        .takes("CudaRegion"),
    get("/v2/cudasharedmemory/region/{region}/status", &regions::Status(RegionKind::Cuda))
        .doc("cudaRegion", "One region of CUDA shared memory.")
        .answers("CudaRegions"),
    post("/v2/cudasharedmemory/region/{region}/unregister", &regions::Unregister(RegionKind::Cuda))
        .doc("unregisterCudaRegion", "Unregister a region of CUDA shared memory."),
    post("/v2/cudasharedmemory/register", &regions::Register(RegionKind::Cuda)),
    get("/v2/trace/setting", &settings::TraceSettings { changes: false })
        .doc("traceSettings", "Trace settings of all models that have no settings of their own.")
        .answers("TraceSettings"),
    post("/v2/trace/setting", &settings::TraceSettings { changes: true })
        .doc("updateTraceSettings", "Change the trace settings of all models that have no settings of their own.")
        .takes("TraceSettings")
        .answers("TraceSettings"),
    get("/v2/logging", &settings::LogSettings { changes: false })
        .doc("logSettings", "Log settings.")
        .answers("LogSettings"),
    post("/v2/logging", &settings::LogSettings { changes: true })
        .doc("updateLogSettings", "Change log settings.")
        .takes("LogSettings")
        .answers("LogSettings"),
];

/// The route of a request. `path` has no query.
pub fn find(method: Method, path: &str) -> Option<Route<'_>> {
    let mut other = None;
    for (row, pattern) in PATTERNS.iter() {
        let Some(names) = pattern.names(path) else { continue };
        let is_allowed = method == row.method || (row.takes_head && method == Method::HEAD);
        let route = Route { endpoint: row.endpoint, is_allowed, names };
        if is_allowed {
            return Some(route);
        }
        other.get_or_insert(route);
    }
    other
}

/// The rows with their parsed paths.
static PATTERNS: LazyLock<Vec<(RouteRow, Pattern)>> = LazyLock::new(|| {
    let rows = ROWS.iter();
    #[cfg(test)]
    let rows = rows.chain(&[crate::endpoints::example::ROW]);
    rows.map(|row| (*row, Pattern::new(row.path))).collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::paths::PathNames;

    fn found(path: &str) -> Option<(&'static str, [&str; 4])> {
        let Route { endpoint, names: PathNames { model, version, region, repository }, .. } = find(Method::Get, path)?;
        Some((endpoint.facts().name, [model, version, region, repository]))
    }

    #[test]
    fn each_path_is_known_with_a_slash_behind_it_which_is_not_routed() {
        for row in ROWS.iter().filter(|row| row.path != "/") {
            let path = row.path.replace("{version}", "1").replace(['[', ']', '{', '}'], "");
            let slashed = format!("{path}/");
            assert!(find(row.method, &slashed).is_none(), "{slashed}");
            assert!(find(row.method, &path).is_some(), "{path}");
        }
    }

    #[test]
    fn p005_only_the_paths_of_the_table_are_routed() {
        let plain = |name| Some((name, [""; 4]));
        let model = |name, version, endpoint| Some((endpoint, [name, version, "", ""]));
        let region = |name, endpoint| Some((endpoint, ["", "", name, ""]));
        let control = |repository, name, endpoint| Some((endpoint, [name, "", "", repository]));
        for (path, expected) in [
            ("/v2", plain("server_metadata")),
            ("/v2/", None),
            ("/V2", None),
            ("/v2/models", plain("models")),
            ("/", plain("page")),
            ("", None),
            ("//", None),
            ("/docs", plain("page")),
            ("/docs/", None),
            ("/console", plain("page")),
            ("/app/console.js", plain("page")),
            ("/console/events", plain("console")),
            ("/docs/../v2", None),
            ("/v2/models/", None),
            ("/v2/models/stats", plain("statistics")),
            ("/v2/models/stats/stats", model("stats", "", "statistics")),
            ("/v2/models/stats/config", model("stats", "", "model_config")),
            ("/v2/models/m", model("m", "", "model_metadata")),
            ("/v2/models/m/", None),
            ("/v2/models/m/versions", None),
            ("/v2/models/m/versions/", None),
            ("/v2/models/m/versions/1", model("m", "1", "model_metadata")),
            ("/v2/models/m/versions/01/ready", model("m", "01", "model_ready")),
            ("/v2/models/m/versions/x", None),
            ("/v2/models/m/versions/-1", None),
            ("/v2/models/m/versions/1/versions/1", None),
            ("/v2/models/m/infer", model("m", "", "infer")),
            ("/v2/models/m/inferred", None),
            ("/v2/models/versions/infer", model("versions", "", "infer")),
            ("/v2/models/m/versions/2/infer", model("m", "2", "infer")),
            ("/v2/models/m/generate", model("m", "", "generate")),
            ("/v2/models/m/generate_stream", model("m", "", "generate_stream")),
            ("/v2/models/m/ready", model("m", "", "model_ready")),
            ("/v2/models//ready", None),
            ("/v2/models/m/trace/setting", model("m", "", "trace_settings")),
            ("/v2/models/m/versions/1/trace/setting", None),
            ("/v2/trace/setting", plain("trace_settings")),
            ("/v2/trace", None),
            ("/v2/logging", plain("log_settings")),
            ("/v2/logging/", None),
            ("/v2/openapi.json", plain("openapi")),
            ("/v2/openapi.json/", None),
            ("/v2/health/live", plain("server_live")),
            ("/v2/health/ready", plain("server_ready")),
            ("/v2/health/LIVE", None),
            ("/v2//health/live", None),
            ("//v2/health/live", None),
            ("/v2/systemsharedmemory", None),
            ("/v2/systemsharedmemory/status", plain("system_region_status")),
            ("/v2/systemsharedmemory/register", plain("system_region_register")),
            ("/v2/systemsharedmemory/region/r/unregister", region("r", "system_region_unregister")),
            ("/v2/systemsharedmemory/region//status", None),
            ("/v2/cudasharedmemory/region/r/status", region("r", "cuda_region_status")),
            ("/v2/repository", None),
            ("/v2/repository/", None),
            ("/v2/repository/index", plain("index")),
            ("/v2/repository/foo/index", control("foo", "", "index")),
            ("/v2/repository/models/m/load", control("", "m", "load")),
            ("/v2/repository/models/m/unload", control("", "m", "unload")),
            ("/v2/repository/foo/models/m/load", control("foo", "m", "load")),
            ("/v2/repository/models/models/m/load", control("models", "m", "load")),
            ("/metrics", plain("metrics")),
            ("/v1/models/m/load", model("m", "", "load")),
        ] {
            assert_eq!(found(path), expected, "{path}");
        }
    }

    #[test]
    fn p006_each_path_takes_its_methods() {
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
            for (method, letter) in [("GET", 'G'), ("POST", 'P'), ("HEAD", 'H'), ("PUT", 'U')] {
                let route = find(Method::parse(method.as_bytes()), path).unwrap();
                assert_eq!(route.is_allowed, allowed.contains(letter), "{method} {path}");
            }
        }
        assert_eq!(Method::parse(b"OPTIONS"), Method::OPTIONS);
    }

    #[test]
    fn an_unsupported_method_has_the_endpoint_of_another_method() {
        let other = find(Method::parse(b"PUT"), "/v2/logging").unwrap();
        assert_eq!((other.endpoint.facts().name, other.is_allowed), ("log_settings", false));
        let post = find(Method::Post, "/v2/logging").unwrap();
        assert_eq!((post.endpoint.facts().name, post.is_allowed), ("log_update", true));
    }
}
