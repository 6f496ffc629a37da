/** Repositories in S3, and in what others make with its interface. */
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { Readable } from 'node:stream'
import { GetObjectCommand, ListObjectsV2Command, S3Client, S3ServiceException, type S3ClientConfig } from '@aws-sdk/client-s3'
import { fromNodeProviderChain } from '@aws-sdk/credential-providers'
import { StoreError, type OpenStore, type StoreClient, type StoredObject } from '../client.js'
import { CREDENTIAL_FILE, credentialFor, strings } from './credential_file.js'
import { CONNECT_MS_MAX, Requests, SOCKETS_MAX, bytes, codeOf, failed, failureOf, nothing, silence, type Answer } from './requests.js'

const REGION = 'us-east-1'
const MEMBERS = ['secret_key', 'key_id', 'region', 'session_token', 'profile'] as const

interface Location {
  /** Null for AWS itself. */
  endpoint: string | null
  bucket: string
  /** Without slashes at its ends. */
  path: string
}

/** `s3://bucket/path`, or with a host in front, which needs a port or a scheme to be known as one. @throws {StoreError} */
export function locate(url: string): Location {
  const [, scheme, rest = ''] = /^s3:\/\/(https?:\/\/)?(.*)$/s.exec(url) ?? []
  const parts = rest.split('/').filter((part) => part !== '')
  const hasHost = scheme !== undefined || /:\d+$/.test(parts[0] ?? '')
  const host = hasHost ? parts.shift() : undefined
  const [bucket, ...path] = parts
  if (host?.includes('@')) throw new StoreError('invalid', `an s3:// repository has no user in front of its host: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY`)
  const endpoint = hasHost ? `${scheme ?? 'http://'}${host}` : null
  if (bucket === undefined || (endpoint !== null && !URL.canParse(endpoint))) {
    throw new StoreError('invalid', `${url} is not a place in S3: write s3://BUCKET/PATH, s3://HOST:PORT/BUCKET/PATH or s3://https://HOST:PORT/BUCKET/PATH`)
  }
  return { endpoint, bucket, path: path.join('/') }
}

interface Access extends Pick<S3ClientConfig, 'credentials' | 'region' | 'profile' | 'signer'> {
  /** Nobody's: enough for a bucket that everybody may read. */
  anonymous?: true
}

const silent = { trace() {}, debug() {}, info() {}, warn() {}, error() {} }

/** Who asks, as the credential file or the environment say. Files are read again at each call. */
async function access(url: string, environment: NodeJS.ProcessEnv): Promise<Access> {
  const entry = await credentialFor('s3', url, environment)
  if (entry !== null) {
    const { key_id, secret_key, session_token, region, profile } = strings(entry, MEMBERS, 's3')
    if (key_id !== undefined && secret_key !== undefined) return keys(key_id, secret_key, session_token, region)
    // A profile that is named keeps the chain from the variables of the environment.
    return chain(profile ?? 'default', region)
  }
  const { AWS_ACCESS_KEY_ID: id, AWS_SECRET_ACCESS_KEY: secret, AWS_SESSION_TOKEN: token } = environment
  const region = environment.AWS_DEFAULT_REGION || environment.AWS_REGION || undefined
  if (id && secret) return keys(id, secret, token, region)
  return chain(environment.AWS_PROFILE || undefined, region)
}

function keys(accessKeyId: string, secretAccessKey: string, token: string | undefined, region = REGION): Access {
  return { region, credentials: { accessKeyId, secretAccessKey, ...(token ? { sessionToken: token } : {}) } }
}

async function chain(profile: string | undefined, region: string | undefined): Promise<Access> {
  const named = profile === undefined ? {} : { profile }
  const credentials = fromNodeProviderChain({ ...named, ignoreCache: true, logger: silent, clientConfig: { region: region ?? REGION } })
  // A client without a region throws where neither a variable nor the profile has one.
  const found = region ?? (await new S3Client({ ...named, logger: silent }).config.region().catch(() => REGION))
  const access = { ...named, credentials, region: found }
  if (profile !== undefined) return access
  return credentials().then(
    () => access,
    () => ({ anonymous: true, region: found, credentials: { accessKeyId: '', secretAccessKey: '' }, signer: { sign: async (request) => request } }),
  )
}

class S3Store implements StoreClient {
  readonly #location: Location
  /** For messages. */
  readonly #url: string
  readonly #endpoint: string
  readonly #agents = [new HttpAgent({ keepAlive: true, maxSockets: SOCKETS_MAX }), new HttpsAgent({ keepAlive: true, maxSockets: SOCKETS_MAX })] as const
  readonly #requests: Requests<S3Client>
  readonly #credentials: string
  #anonymous = false

  constructor(url: string, environment: NodeJS.ProcessEnv) {
    this.#location = locate(url)
    const { endpoint, bucket, path } = this.#location
    this.#endpoint = endpoint ?? 'S3'
    this.#url = `s3://${[endpoint, bucket, path].filter(Boolean).join('/')}`
    const file = environment[CREDENTIAL_FILE]
    this.#credentials = file
      ? `write the keys of ${this.#url} into ${file}`
      : 'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN where the key is a temporary one), or AWS_PROFILE, to what may list and read this bucket'
    const [httpAgent, httpsAgent] = this.#agents
    const common: S3ClientConfig = {
      ...(endpoint === null ? { followRegionRedirects: true } : { endpoint, forcePathStyle: true }),
      requestHandler: { httpAgent, httpsAgent, connectionTimeout: CONNECT_MS_MAX },
      maxAttempts: 1,
      // Storage of others does not know the newer ones.
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      logger: silent,
    }
    this.#requests = new Requests(
      async () => {
        const { anonymous = false, ...found } = await access(url, environment)
        this.#anonymous = anonymous
        return new S3Client({ ...common, ...found })
      },
      (error, asked) => this.#explain(error, asked),
    )
  }

  /** @throws {StoreError} when credentials are written in a way that cannot be read */
  async ready(): Promise<this> {
    await this.#requests.client()
    return this
  }

  async *list(model: string, signal: AbortSignal): AsyncGenerator<StoredObject[]> {
    const { bucket, path } = this.#location
    const root = path === '' ? '' : `${path}/`
    const prefix = model === '' ? root : `${root}${model}/`
    const asked = `${this.#url}${model === '' ? '' : `/${model}`} cannot be listed`
    for (let token: string | undefined, more = true; more; more = token !== undefined) {
      // Names may hold what XML cannot: they come as in a URL.
      const command = new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix, EncodingType: 'url', ...(token === undefined ? {} : { ContinuationToken: token }) })
      const page = await this.#requests.send(asked, signal, (client, abortSignal) => client.send(command, { abortSignal }))
      yield (page.Contents ?? []).flatMap(({ Key = '', Size = 0, ETag = '' }) => {
        const name = page.EncodingType === 'url' ? decodeURIComponent(Key.replaceAll('+', ' ')) : Key
        if (name === root) return []
        const version = bare(ETag)
        return [{ path: name.slice(root.length), size: Size, version, md5: /^[0-9a-f]{32}$/i.test(version) ? version.toLowerCase() : null }]
      })
      token = page.IsTruncated ? page.NextContinuationToken : undefined
    }
  }

  async read(object: StoredObject, from: number, to: number, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    signal.throwIfAborted()
    if (to <= from) return nothing()
    const { bucket, path } = this.#location
    const asked = `${this.#url}/${object.path} cannot be read`
    const command = new GetObjectCommand({
      Bucket: bucket,
      Key: path === '' ? object.path : `${path}/${object.path}`,
      Range: `bytes=${from}-${to - 1}`,
      IfMatch: `"${object.version}"`,
    })
    const { Body, ContentLength, ETag } = await this.#requests.send(asked, signal, (client, abortSignal) => client.send(command, { abortSignal }))
    const stream = Body as Readable
    const body = bytes(stream, asked, this.#endpoint, signal)
    // Not every storage looks at If-Match and Range.
    if (ETag !== undefined && bare(ETag) !== object.version) {
      stream.destroy()
      throw new StoreError('changed', `${asked}: it is another object than was listed`)
    }
    if (ContentLength !== to - from) {
      stream.destroy()
      throw new StoreError('invalid', `${asked}: ${this.#endpoint} sends ${ContentLength} bytes where ${to - from} were asked for: it must know the header Range`)
    }
    return body
  }

  close(): void {
    for (const agent of this.#agents) agent.destroy()
  }

  #advice(): string {
    return `${this.#anonymous ? 'no credentials were found: ' : ''}${this.#credentials}`
  }

  #explain(error: unknown, asked: string): StoreError {
    const { bucket } = this.#location
    const answer = told(error)
    const { status, code } = answer
    const fail = (failure: StoreError['failure'], advice: string) => failed(failure, asked, this.#endpoint, answer, advice)
    if (isOfCredentials(error)) return new StoreError('denied', `${asked}: no credentials were found (${code}): ${this.#credentials}`)
    if (DENIED.has(code)) return fail('denied', this.#advice())
    if (code === 'NoSuchBucket' || code === 'NotFound') return fail('absent', `the bucket '${bucket}' does not exist at ${this.#endpoint}`)
    if (status === 301 || status === 307 || code === 'AuthorizationHeaderMalformed') return fail('invalid', `the bucket '${bucket}' is in another region: set AWS_DEFAULT_REGION to it`)
    const failure = failureOf(answer)
    switch (failure) {
      case 'absent':
        return fail(failure, `the object is not there any more`)
      case 'denied':
        return fail(failure, this.#advice())
      case 'changed':
        return fail(failure, 'it is another object than was listed')
      case 'unavailable':
        return fail(failure, status === undefined ? 'see that it can be reached from here' : 'it may answer later')
      case 'invalid':
      case 'local':
        return fail(failure, `see that '${bucket}' is the name of a bucket there`)
    }
  }
}

/** Without the quotes that an ETag has in headers. */
const bare = (tag: string) => tag.replace(/^(?:W\/)?"?|"$/g, '')

/** Codes that come with the status 400. */
const DENIED = new Set(['ExpiredToken', 'InvalidToken', 'TokenRefreshRequired', 'ExpiredTokenException'])

function told(error: unknown): Answer {
  if (error instanceof S3ServiceException) return { status: error.$metadata.httpStatusCode, code: error.name }
  // An answer that is no XML: of a proxy, for example.
  const { $response } = (error ?? {}) as { $response?: { statusCode?: number } }
  return { status: $response?.statusCode, code: codeOf(error) }
}

/** An error of the chain that looks for credentials. Its message may hold the command that was run for them. */
function isOfCredentials(error: unknown): boolean {
  return error instanceof Error && /^(?:CredentialsProviderError|TokenProviderError|ProviderError)$/.test(error.name)
}

export const open: OpenStore = (url, environment) => {
  silence()
  return new S3Store(url, environment).ready()
}
