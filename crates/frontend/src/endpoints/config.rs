//! The effective configuration of a model.

use super::*;
use bytes::BufMut;
use bytes::BytesMut;

/// The configuration of a model.
pub struct ModelConfig;

impl Endpoint for ModelConfig {
    fn facts(&self) -> &'static Facts {
        const { &Facts { names: MODEL_NAMES, ..Facts::read("model_config", Category::ModelConfig) } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Ready(match exchange.version() {
            Ok(version) => Reply::json(version.identity.config_json()),
            Err(error) => Reply::error(JSON, &error),
        })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let pb::ModelConfigRequest { name, version } = decode(message)?;
            exchange.operations().admit_model(&name)?;
            Ok(config_frame(&exchange.version(&name, &version)?.identity.config_pb()))
        })
    }
}

/// `ModelConfigResponse` around a configuration that is encoded already: field 1, length, bytes.
fn config_frame(config: &Bytes) -> Rope {
    let mut head = BytesMut::with_capacity(16);
    head.put_u8(0x0a);
    // Cannot fail: BytesMut grows.
    let _ = prost::encode_length_delimiter(config.len(), &mut head);
    let length = head.len() + config.len();
    let mut prefix = BytesMut::with_capacity(5);
    prefix.put_u8(0);
    prefix.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    Rope::new([prefix.freeze(), head.freeze(), config.clone()].into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;
    use prost::Message;

    #[test]
    fn a_configuration_is_wrapped_without_being_decoded() {
        let config = pb::ModelConfig { name: "m".repeat(300), max_batch_size: 8, ..Default::default() };
        let mut rope = config_frame(&config.encode_to_vec().into());
        let length = rope.remaining();
        let mut bytes = rope.copy_to_bytes(length);
        assert_eq!((bytes.get_u8(), bytes.get_u32() as usize), (0, length - 5));
        assert_eq!(pb::ModelConfigResponse::decode(bytes).unwrap().config, Some(config));
    }
}
