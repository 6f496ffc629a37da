/**
 * Schemas for kubeconform, made on this machine: of Kubernetes' own kinds out of the description of its API, of others
 * out of their definitions (CRDs) where a module of Go has them, and of KServe's, which none has, out of the fields
 * written down here. Fields that are not in them are refused.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parse } from 'yaml'

const QUANTITY = 'io.k8s.apimachinery.pkg.api.resource.Quantity'
const INT_OR_STRING = 'io.k8s.apimachinery.pkg.util.intstr.IntOrString'
const ANY_NUMBER_OR_STRING = { anyOf: [{ type: 'string' }, { type: 'number' }] }

/**
 * The schema without what it leaves open: objects have the members that it lists. `to` says where a definition stands.
 */
function strict(schema, to) {
  if (typeof schema !== 'object' || schema === null) return schema
  if (Array.isArray(schema)) return schema.map((one) => strict(one, to))
  if (typeof schema.$ref === 'string') return { $ref: to(schema.$ref.replace('#/definitions/', '')) }
  if (schema['x-kubernetes-int-or-string'] === true) return ANY_NUMBER_OR_STRING
  const out = {}
  for (const [key, value] of Object.entries(schema)) {
    // Members may be called as keywords are.
    if (key === 'properties')
      out.properties = Object.fromEntries(Object.entries(value).map(([name, one]) => [name, strict(one, to)]))
    else if (['items', 'additionalProperties', 'anyOf', 'oneOf', 'allOf', 'not'].includes(key))
      out[key] = strict(value, to)
    else if (['type', 'enum', 'required', 'pattern', 'minimum', 'maximum', 'minLength', 'minItems'].includes(key))
      out[key] = value
  }
  // `properties` beside a type are the members; in a branch of anyOf they are conditions.
  if (out.properties !== undefined && out.type === 'object' && schema['x-kubernetes-preserve-unknown-fields'] !== true)
    out.additionalProperties ??= false
  return out
}

/** kubeconform's names of files: the kind, the first word of the group, the version. */
const fileOf = (group, version, kind) =>
  [kind, ...(group === '' ? [] : [group.split('.')[0]]), version].join('-').toLowerCase()

/**
 * Members of KServe's ClusterServingRuntime and InferenceService, as its types in Go have them; `of` is a definition of
 * Kubernetes.
 */
function kserve(of, podMembers) {
  const core = (name) => of(`io.k8s.api.core.v1.${name}`)
  const list = (items) => ({ type: 'array', items })
  const texts = { type: 'object', additionalProperties: { type: 'string' } }
  const [text, whole, flag] = [{ type: 'string' }, { type: 'integer' }, { type: 'boolean' }]
  // In the draft that kubeconform reads, `required` may not be empty.
  const object = (properties, required) => ({
    type: 'object',
    properties,
    ...(required === undefined ? {} : { required }),
    additionalProperties: false,
  })
  const top = (spec) =>
    object({ apiVersion: text, kind: text, metadata: of('io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta'), spec }, [
      'apiVersion',
      'kind',
      'metadata',
      'spec',
    ])
  const format = object({ name: text, version: text, autoSelect: flag, priority: { type: 'integer', minimum: 1 } }, [
    'name',
  ])
  const protocols = { enum: ['v1', 'v2', 'grpc-v1', 'grpc-v2'] }
  const runtime = {
    supportedModelFormats: list(format),
    multiModel: flag,
    disabled: flag,
    protocolVersions: list(protocols),
    replicas: whole,
    containers: list(core('Container')),
    volumes: list(core('Volume')),
    nodeSelector: texts,
    affinity: core('Affinity'),
    tolerations: list(core('Toleration')),
    labels: texts,
    annotations: texts,
    imagePullSecrets: list(core('LocalObjectReference')),
    hostIPC: flag,
  }
  const extension = {
    minReplicas: whole,
    maxReplicas: whole,
    scaleTarget: whole,
    scaleMetric: { enum: ['cpu', 'memory', 'concurrency', 'rps'] },
    containerConcurrency: whole,
    timeout: whole,
    canaryTrafficPercent: whole,
    labels: texts,
    annotations: texts,
    deploymentStrategy: of('io.k8s.api.apps.v1.DeploymentStrategy'),
  }
  const container = podMembers('Container')
  const model = object(
    {
      ...container,
      modelFormat: object({ name: text, version: text }, ['name']),
      runtime: text,
      protocolVersion: protocols,
      storageUri: text,
      storage: { type: 'object' },
      runtimeVersion: text,
    },
    ['modelFormat'],
  )
  return {
    [fileOf('serving.kserve.io', 'v1alpha1', 'ClusterServingRuntime')]: top(object(runtime, ['containers'])),
    [fileOf('serving.kserve.io', 'v1beta1', 'InferenceService')]: top(
      object({ predictor: object({ ...podMembers('PodSpec'), ...extension, model }) }, ['predictor']),
    ),
  }
}

/**
 * Writes them into a directory, and resolves with the argument of -schema-location.
 *
 * @param swagger path of Kubernetes' api/openapi-spec/swagger.json
 * @param crds paths of CRDs
 */
export function writeSchemas(directory, swagger, crds) {
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  const shared = join(directory, 'definitions.json')
  const outside = (name) => `${pathToFileURL(shared).href}#/definitions/${name}`
  const of = (name) => ({ $ref: outside(name) })
  const inside = (name) => `#/definitions/${name}`
  const { definitions } = JSON.parse(readFileSync(swagger, 'utf8'))
  const own = Object.fromEntries(Object.entries(definitions).map(([name, schema]) => [name, strict(schema, inside)]))
  own[QUANTITY] = ANY_NUMBER_OR_STRING
  own[INT_OR_STRING] = ANY_NUMBER_OR_STRING
  writeFileSync(shared, JSON.stringify({ definitions: own }))
  const write = (name, schema) => writeFileSync(join(directory, `${name}.json`), JSON.stringify(schema))
  for (const [name, schema] of Object.entries(definitions)) {
    for (const { group, version, kind } of schema['x-kubernetes-group-version-kind'] ?? [])
      if (!kind.endsWith('List')) write(fileOf(group, version, kind), of(name))
  }
  for (const path of crds) {
    const { spec } = parse(readFileSync(path, 'utf8'))
    for (const { name, schema } of spec.versions)
      write(fileOf(spec.group, name, spec.names.kind), strict(schema.openAPIV3Schema, outside))
  }
  const members = (kind) => strict(definitions[`io.k8s.api.core.v1.${kind}`], outside).properties
  for (const [name, schema] of Object.entries(kserve(of, members))) write(name, schema)
  return join(directory, '{{ .ResourceKind }}{{ .KindSuffix }}.json')
}
