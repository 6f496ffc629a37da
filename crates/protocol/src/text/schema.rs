//! Schemas of the forms for the OpenAPI document, made of their types.

use super::{cohere, openai, tei};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};

/// A text, texts, token ids of a text, or lists of token ids.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub enum Input {
    Text(String),
    Texts(Vec<String>),
    Ids(Vec<u32>),
    ListsOfIds(Vec<Vec<u32>>),
}

/// A text, or texts.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub enum TextOrTexts {
    Text(String),
    Texts(Vec<String>),
}

/// Texts, or objects with a `text`.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub enum Documents {
    Texts(Vec<String>),
    Objects(Vec<DocumentObject>),
}

/// A document.
#[derive(JsonSchema)]
#[allow(dead_code)]
pub struct DocumentObject {
    text: String,
}

/// Numbers, or base64 of them as FP32, little-endian.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

fn add<T: JsonSchema>(generator: &mut SchemaGenerator, name: &str) {
    // Under the name that the table of routes has.
    let schema = T::json_schema(generator);
    generator.definitions_mut().insert(name.to_owned(), schema.into());
}

#[test]
fn schemas_of_the_forms_are_up_to_date() {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let to = &mut generator;
    add::<openai::EmbeddingsRequest>(to, "EmbeddingsRequest");
    add::<openai::EmbeddingsAnswer<'_>>(to, "EmbeddingsAnswer");
    add::<openai::ModelList<'_>>(to, "ModelList");
    add::<openai::ModelItem<'_>>(to, "ModelItem");
    add::<openai::ClassifyRequest>(to, "ClassifyRequest");
    add::<openai::ClassifyAnswer<'_>>(to, "ClassifyAnswer");
    add::<openai::ScoreRequest>(to, "ScoreRequest");
    add::<openai::ScoreAnswer<'_>>(to, "ScoreAnswer");
    add::<cohere::EmbedRequest>(to, "EmbedRequest");
    add::<cohere::EmbedAnswer<'_>>(to, "EmbedAnswer");
    add::<cohere::RerankRequest>(to, "RerankRequest");
    add::<cohere::RerankAnswer<'_>>(to, "RerankAnswer");
    add::<tei::InputsRequest>(to, "InputsRequest");
    add::<Vec<Vec<f32>>>(to, "EmbedRows");
    add::<Vec<Vec<tei::Prediction>>>(to, "Predictions");
    add::<Vec<Vec<tei::Token>>>(to, "Tokens");
    add::<tei::Info<'_>>(to, "Info");
    add::<openai::ErrorAnswer<'_>>(to, "TextError");
    add::<tei::ErrorAnswer<'_>>(to, "TeiError");
    let mut schemas = generator.take_definitions(true);
    // The title repeats the name, formats of numbers say nothing to a client, and null stands for an absent member.
    let mut plain = RecursiveTransform(|schema: &mut Schema| {
        for key in ["title", "format", "default"] {
            schema.remove(key);
        }
    });
    for schema in schemas.values_mut() {
        if let Ok(schema) = <&mut Schema>::try_from(schema) {
            plain.transform(schema);
        }
    }
    let lines = schemas.iter().map(|(name, schema)| format!("  {name}: {schema},\n"));
    let text = format!(
        "// Made by `NEREID_UPDATE=1 cargo test -p nereid-protocol schemas` of the types in crates/protocol/src/text.\n\
         import type {{ Schema }} from '../schemas.js'\n\n/** Schemas of the text endpoints. */\n\
         export const TEXT_SCHEMAS: Schema = {{\n{}}}\n",
        lines.collect::<String>()
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/api/openapi/generated/text.ts");
    if std::env::var_os("NEREID_UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(written, text, "NEREID_UPDATE=1 cargo test -p nereid-protocol schemas writes it");
}
