/**
 * A trace collector: receives OTLP over HTTP and decodes the protobuf by the definitions of opentelemetry-proto, with
 * another library than the one that encoded it.
 */
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { create, createFileRegistry, fromBinary, toJson } from '@bufbuild/protobuf'
import {
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from '@bufbuild/protobuf/wkt'

/** `name type number`; a message's name for a message, `[]` for repeated. opentelemetry-proto 1.x, trace service. */
const MESSAGES: Record<string, string[]> = {
  ExportTraceServiceRequest: ['resource_spans ResourceSpans[] 1'],
  ResourceSpans: ['resource Resource 1', 'scope_spans ScopeSpans[] 2', 'schema_url STRING 3'],
  Resource: ['attributes KeyValue[] 1', 'dropped_attributes_count UINT32 2'],
  ScopeSpans: ['scope Scope 1', 'spans Span[] 2', 'schema_url STRING 3'],
  Scope: ['name STRING 1', 'version STRING 2'],
  KeyValue: ['key STRING 1', 'value AnyValue 2'],
  AnyValue: ['string_value STRING 1', 'bool_value BOOL 2', 'int_value INT64 3', 'double_value DOUBLE 4'],
  Event: ['time_unix_nano FIXED64 1', 'name STRING 2', 'attributes KeyValue[] 3', 'dropped_attributes_count UINT32 4'],
  Status: ['message STRING 2', 'code INT32 3'],
  Span: [
    'trace_id BYTES 1',
    'span_id BYTES 2',
    'trace_state STRING 3',
    'parent_span_id BYTES 4',
    'name STRING 5',
    'kind INT32 6',
    'start_time_unix_nano FIXED64 7',
    'end_time_unix_nano FIXED64 8',
    'attributes KeyValue[] 9',
    'dropped_attributes_count UINT32 10',
    'events Event[] 11',
    'dropped_events_count UINT32 12',
    'status Status 15',
    'flags FIXED32 16',
  ],
}

const file = create(FileDescriptorProtoSchema, {
  name: 'otlp.proto',
  package: 'otlp',
  syntax: 'proto3',
  messageType: Object.entries(MESSAGES).map(([name, fields]) => ({
    name,
    // The oneof, which distinguishes a value of 0 from an absent one.
    ...(name === 'AnyValue' ? { oneofDecl: [{ name: 'value' }] } : {}),
    field: fields.map((text) => {
      const [field = '', type = '', number] = text.split(' ')
      const plain = type.replace('[]', '')
      const scalar = Type[plain as keyof typeof Type]
      return {
        name: field,
        jsonName: field.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
        number: Number(number),
        label: type.endsWith('[]') ? Label.REPEATED : Label.OPTIONAL,
        type: scalar ?? Type.MESSAGE,
        ...(name === 'AnyValue' ? { oneofIndex: 0 } : {}),
        ...(scalar === undefined ? { typeName: `.otlp.${plain}` } : {}),
      }
    }),
  })),
})
const REGISTRY = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }))

export interface Span {
  traceId: string
  spanId: string
  /** Empty = none. */
  parentSpanId: string
  traceState: string
  name: string
  kind: number
  /** Nanoseconds since 1970. */
  start: bigint
  end: bigint
  attributes: Record<string, string | number>
  events: { name: string; ns: bigint }[]
  droppedEvents: number
  status: number
  resource: Record<string, string | number>
  scope: string
}

export class Collector {
  /** Spans in the order of arrival. */
  readonly spans: Span[] = []
  /** Spans, path and content type of each message. */
  readonly messages: { path: string; type: string; headers: IncomingMessage['headers']; spans: number }[] = []
  /** Handles a message instead of accepting it. */
  answer: ((response: ServerResponse) => void) | null = null
  readonly #server = createServer((request, response) => void this.#take(request, response))

  static async start(port = 0): Promise<Collector> {
    const collector = new Collector()
    await new Promise<void>((resolve, reject) => {
      collector.#server.once('error', reject)
      collector.#server.listen(port, '127.0.0.1', resolve)
    })
    return collector
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/v1/traces`
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  /** Removes the received spans. */
  clear(): void {
    this.spans.length = 0
    this.messages.length = 0
  }

  /** Waits until this many spans have arrived, and fails after a timeout. */
  async until(count: number, ms = 20_000): Promise<Span[]> {
    const end = Date.now() + ms
    while (this.spans.length < count) {
      if (Date.now() > end)
        throw new Error(
          `${this.spans.length} spans came and ${count} were to come: ${this.spans.map((s) => s.name).join(' ')}`,
        )
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
    return this.spans
  }

  /** The spans as a tree, `name(child child)`, children ordered by start. */
  tree(): string {
    const ids = new Set(this.spans.map((span) => span.spanId))
    const below = (parent: string): string =>
      this.spans
        .filter((span) => span.parentSpanId === parent)
        .toSorted((a, b) => Number(a.start - b.start) || (a.name < b.name ? -1 : 1))
        .map((span) => `${span.name}${below(span.spanId)}`)
        .join(' ')
        .replace(/^(.+)$/, '($1)')
    // A root has no parent, or the span of a client.
    const above = [...new Set(this.spans.map((span) => span.parentSpanId).filter((id) => !ids.has(id)))]
    return above.map((id) => below(id).slice(1, -1)).join(' | ')
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part as Buffer)
    if (this.answer !== null) return this.answer(response)
    const type = request.headers['content-type'] ?? ''
    const spans = readMessage(Buffer.concat(parts), type)
    this.messages.push({ path: request.url ?? '', type, headers: request.headers, spans: spans.length })
    this.spans.push(...spans)
    response.writeHead(200, { 'content-type': type }).end()
  }
}

/** The JSON form of a message, in which protobuf omits empty fields. */
interface Attribute {
  key: string
  value: { stringValue?: string; intValue?: string | number }
}
interface SpanJson {
  traceId: string
  spanId: string
  parentSpanId?: string
  traceState?: string
  name: string
  kind: number
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes?: Attribute[]
  events?: { name: string; timeUnixNano: string }[]
  droppedEventsCount?: number
  status?: { code?: number }
}
interface MessageJson {
  resourceSpans: {
    resource: { attributes?: Attribute[] }
    scopeSpans: { scope: { name: string }; spans: SpanJson[] }[]
  }[]
}

function readMessage(bytes: Buffer, type: string): Span[] {
  const isJson = type === 'application/json'
  const schema = REGISTRY.getMessage('otlp.ExportTraceServiceRequest')
  if (schema === undefined) throw new Error('no descriptor')
  const message = (isJson ? JSON.parse(bytes.toString()) : toJson(schema, fromBinary(schema, bytes))) as MessageJson
  // Bytes are base64 in protobuf's JSON form, hexadecimal in OTLP's.
  const id = (text = ''): string => (isJson ? text : Buffer.from(text, 'base64').toString('hex'))
  return message.resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ scope, spans }) =>
      spans.map((span) => ({
        traceId: id(span.traceId),
        spanId: id(span.spanId),
        parentSpanId: id(span.parentSpanId),
        traceState: span.traceState ?? '',
        name: span.name,
        kind: span.kind,
        start: BigInt(span.startTimeUnixNano),
        end: BigInt(span.endTimeUnixNano),
        attributes: attributes(span.attributes),
        events: (span.events ?? []).map((event) => ({ name: event.name, ns: BigInt(event.timeUnixNano) })),
        droppedEvents: span.droppedEventsCount ?? 0,
        status: span.status?.code ?? 0,
        resource: attributes(resource.attributes),
        scope: scope.name,
      })),
    ),
  )
}

function attributes(list: Attribute[] = []): Record<string, string | number> {
  return Object.fromEntries(
    list.map(({ key, value }) => [
      key,
      value.intValue === undefined ? (value.stringValue ?? '') : Number(value.intValue),
    ]),
  )
}
