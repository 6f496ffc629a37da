/** Repositories in S3, and in what others make with its interface. */
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { GetObjectCommand, ListObjectsV2Command, S3Client, S3ServiceException, type S3ClientConfig } from '@aws-sdk/client-s3'
import { fromNodeProviderChain } from '@aws-sdk/credential-providers'
import { loadSharedConfigFiles } from '@smithy/core/config'
import { StoreError, type OpenStore } from '../client.js'
import { CREDENTIAL_FILE, credentialFor, strings } from './credential_file.js'
import { codeOf, silence } from './requests.js'
import { Foreign, Store, split, type Cloud, type Location, type Meaning } from './store.js'

const REGION = 'us-east-1'
/** For credentials to come: from a process, a service, or the metadata of the machine. */
const CREDENTIALS_MS_MAX = 10_000
const MEMBERS = ['secret_key', 'key_id', 'region', 'session_token', 'profile'] as const

/** Codes that come with the status 400. */
const DENIED = new Set(['ExpiredToken', 'ExpiredTokenException', 'InvalidToken', 'TokenRefreshRequired'])

/** `s3://bucket/path`, or with a host in front, which needs a port or a scheme to be known as one. `custom` is that host. @throws {StoreError} */
function locate(url: string): Location & { custom: string | null } {
  const [, scheme, rest = ''] = /^s3:\/\/(https?:\/\/)?(.*)$/s.exec(url) ?? []
  const parts = split(rest)
  const hasHost = scheme !== undefined || /:\d+$/.test(parts[0] ?? '')
  const host = hasHost ? parts.shift() : undefined
  const [bucket, ...path] = parts
  if (host?.includes('@')) throw new StoreError('invalid', 'an s3:// repository has no user in front of its host: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY')
  const custom = hasHost ? `${scheme ?? 'http://'}${host}` : null
  if (bucket === undefined || (custom !== null && !URL.canParse(custom))) {
    throw new StoreError('invalid', `${url} is not a place in S3: write s3://BUCKET/PATH, s3://HOST:PORT/BUCKET/PATH or s3://https://HOST:PORT/BUCKET/PATH`)
  }
  return { custom, url: `s3://${[...(custom === null ? [] : [custom]), bucket, ...path].join('/')}`, endpoint: custom ?? 'S3', bucket, path: path.join('/') }
}

type Access = Pick<S3ClientConfig, 'credentials' | 'region' | 'profile' | 'signer'>

const silent = { trace() {}, debug() {}, info() {}, warn() {}, error() {} }

/** Who asks, as the credential file or the environment say; null is nobody. Files are read again at each call. */
async function access(url: string, environment: NodeJS.ProcessEnv): Promise<Access | { region: string; nobody: true }> {
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

async function chain(profile: string | undefined, region: string | undefined): Promise<Access | { region: string; nobody: true }> {
  const named = profile === undefined ? {} : { profile }
  const found = region ?? (await regionOf(profile ?? 'default'))
  const credentials = inTime(profile ?? '', fromNodeProviderChain({ ...named, ignoreCache: true, logger: silent, clientConfig: { region: found } }))
  const asked = { ...named, credentials, region: found }
  if (profile !== undefined) return asked
  // Nobody's credentials are enough for a bucket that everybody may read.
  return credentials().then(
    () => asked,
    () => ({ region: found, nobody: true }),
  )
}

/** By the profile. */
const asked = new Map<string, Promise<unknown>>()

/** Credentials come in a time, or not. Whatever gives them, a process perhaps, is not asked again before it answered. */
function inTime<T, A extends unknown[]>(profile: string, provide: (...given: A) => Promise<T>): (...given: A) => Promise<T> {
  return async (...given) => {
    const answer = (asked.get(profile) as Promise<T> | undefined) ?? provide(...given).finally(() => asked.delete(profile))
    asked.set(profile, answer)
    const stop = new AbortController()
    const late = sleep(CREDENTIALS_MS_MAX, undefined, { signal: stop.signal }).then(() => {
      throw Object.assign(new Error('no answer'), { name: 'CredentialsProviderError', code: 'ETIMEDOUT' })
    })
    return Promise.race([answer, late]).finally(() => stop.abort())
  }
}

/** As the profile has it. */
async function regionOf(profile: string): Promise<string> {
  const { configFile, credentialsFile } = await loadSharedConfigFiles({ ignoreCache: true })
  return configFile[profile]?.region ?? credentialsFile[profile]?.region ?? REGION
}

const NOBODY: Access = { credentials: { accessKeyId: '', secretAccessKey: '' }, signer: { sign: async (request) => request } }

function cloud(url: string, environment: NodeJS.ProcessEnv): Cloud<S3Client> {
  const { custom, ...location } = locate(url)
  const { bucket } = location
  const file = environment[CREDENTIAL_FILE]
  let anonymous = false
  return {
    location,
    noun: 'bucket',
    credentials() {
      const advice = file
        ? `write the keys for ${location.url} into ${file}`
        : 'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, where the key is a temporary one), or AWS_PROFILE, to what may list and read this bucket'
      return anonymous ? `no credentials were found: ${advice}` : advice
    },
    async open(agents) {
      const { region, ...found } = await access(url, environment)
      anonymous = 'nobody' in found
      return new S3Client({
        region: region ?? REGION,
        ...('nobody' in found ? NOBODY : found),
        ...(custom === null ? { followRegionRedirects: true } : { endpoint: custom, forcePathStyle: true }),
        requestHandler: { httpAgent: agents.http, httpsAgent: agents.https },
        maxAttempts: 1,
        // Storage of others does not know the newer ones.
        requestChecksumCalculation: 'WHEN_REQUIRED',
        responseChecksumValidation: 'WHEN_REQUIRED',
        logger: silent,
      })
    },
    async page(client, prefix, token, abortSignal) {
      // Names may hold what XML cannot: they come as in a URL.
      const command = new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix, EncodingType: 'url', ...(token === undefined ? {} : { ContinuationToken: token }) })
      const { Name, KeyCount, Contents = [], EncodingType, IsTruncated, NextContinuationToken } = await client.send(command, { abortSignal })
      if ((Name ?? KeyCount ?? IsTruncated) === undefined) throw new Foreign()
      const objects = Contents.map(({ Key = '', Size = 0, ETag = '' }) => {
        const version = bare(ETag)
        const path = EncodingType === 'url' ? decodeURIComponent(Key.replaceAll('+', ' ')) : Key
        // Of one without bytes nothing is read, so nothing tells how it was encrypted.
        return { path, size: Size, version, md5: Size > 0 && /^[0-9a-f]{32}$/i.test(version) ? version.toLowerCase() : null }
      })
      return { objects, next: IsTruncated ? NextContinuationToken : undefined }
    },
    async range(client, name, version, from, to, abortSignal) {
      const command = new GetObjectCommand({ Bucket: bucket, Key: name, Range: `bytes=${from}-${to - 1}`, IfMatch: `"${version}"` })
      const { Body, ETag, ContentLength, ContentEncoding, ServerSideEncryption } = await client.send(command, { abortSignal })
      // The ETag of an object that is encrypted by a key of KMS looks like an MD5, and is none. A list does not tell which those are.
      const isWithoutMd5 = ServerSideEncryption?.startsWith('aws:kms') ?? false
      // An object that was stored compressed has a length. A proxy that compresses does not know it before.
      const isOwn = ETag !== undefined && (ContentLength !== undefined || ContentEncoding === undefined)
      return { stream: Body as Readable, version: isOwn ? bare(ETag) : undefined, length: ContentLength, isWithoutMd5 }
    },
    meaning: (error) => meaning(error, location),
  }
}

/** Without the quotes that an ETag has in headers. */
const bare = (tag: string) => tag.replace(/^(?:W\/)?"?|"$/g, '')

function meaning(error: unknown, { bucket, endpoint }: Location): Meaning | null {
  // The message of such an error may hold the command that was run for credentials.
  if (error instanceof Error && /^(?:CredentialsProviderError|TokenProviderError|ProviderError)$/.test(error.name)) {
    return { answer: { status: undefined, code: codeOf(error) }, failure: 'denied', endpoint: 'the profile that has the credentials' }
  }
  // An answer that is no XML, of a proxy for example, is an error with its response.
  const { $response } = (error ?? {}) as { $response?: { statusCode?: number } }
  const status = error instanceof S3ServiceException ? error.$metadata.httpStatusCode : $response?.statusCode
  if (status === undefined) return null
  const code = error instanceof S3ServiceException ? error.name : codeOf(error)
  const answer = { status, code }
  if (DENIED.has(code)) return { answer, failure: 'denied' }
  if (code === 'RequestTimeTooSkewed') return { answer, advice: 'the clock of this machine is another than that of the storage: set it' }
  if (code === 'InvalidObjectState') return { answer, failure: 'invalid', advice: 'the object is archived: restore it first' }
  if (code === 'NoSuchBucket') return { answer, advice: `the bucket '${bucket}' does not exist at ${endpoint}` }
  if (status === 301 || status === 307 || code === 'AuthorizationHeaderMalformed') return { answer, failure: 'invalid', advice: `the bucket '${bucket}' is in another region: set AWS_DEFAULT_REGION to it` }
  return { answer }
}

export const open: OpenStore = async (url, environment) => {
  silence()
  // Of old versions of Node it would tell at each start.
  process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED = 'true'
  return Store.open(cloud(url, environment))
}
