"""`simple` as a runtime of MLServer."""
import os

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Simple(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["BENCH_MODEL"], options)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {i.name: NumpyCodec.decode_input(i) for i in payload.inputs}
        outputs = self.session.run(None, inputs)
        named = zip(("OUTPUT0", "OUTPUT1"), outputs)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output(n, o) for n, o in named])
