/** Repositories in S3 and compatible storage. */
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  S3Client,
  S3ServiceException,
  type HeadObjectCommandOutput,
  type S3ClientConfig,
} from '@aws-sdk/client-s3'
import { fromNodeProviderChain } from '@aws-sdk/credential-providers'
import { loadSharedConfigFiles } from '@smithy/core/config'
import { StoreError, type OpenStore } from '../client.js'
import { CREDENTIAL_FILE, credentialFor, strings } from './credential_file.js'
import { codeOf, silence } from './requests.js'
import { ForeignResponse, Store, split, type Cloud, type Found, type Location, type Meaning } from './store.js'

const REGION = 'us-east-1'
/** Timeout for credentials, which may come from a process, a service, or the metadata of the machine. */
const CREDENTIALS_MS_MAX = 10_000
const MEMBERS = ['secret_key', 'key_id', 'region', 'session_token', 'profile'] as const

/** Codes of rejected credentials that come with status 400. */
const DENIED = new Set(['ExpiredToken', 'ExpiredTokenException', 'InvalidToken', 'TokenRefreshRequired'])

/**
 * Parses `s3://bucket/path`, optionally with a host (`custom`) in front, which must have a port or a scheme.
 *
 * @throws {StoreError}
 */
function locate(url: string): Location & { custom: string | null } {
  const [, scheme, rest = ''] = /^s3:\/\/(https?:\/\/)?(.*)$/s.exec(url) ?? []
  const parts = split(rest)
  const hasHost = scheme !== undefined || /:\d+$/.test(parts[0] ?? '')
  const host = hasHost ? parts.shift() : undefined
  const [bucket, ...path] = parts
  if (host?.includes('@')) {
    const advice = 'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY'
    throw new StoreError('invalid', `an s3:// repository has no user in front of its host: ${advice}`)
  }
  const custom = hasHost ? `${scheme ?? 'http://'}${host}` : null
  if (bucket === undefined || (custom !== null && !URL.canParse(custom))) {
    const forms = 's3://BUCKET/PATH, s3://HOST:PORT/BUCKET/PATH or s3://https://HOST:PORT/BUCKET/PATH'
    throw new StoreError('invalid', `${url} is not a location in S3: write ${forms}`)
  }
  const whole = `s3://${[...(custom === null ? [] : [custom]), bucket, ...path].join('/')}`
  return { custom, url: whole, endpoint: custom ?? 'S3', bucket, path: path.join('/') }
}

type Access = Pick<S3ClientConfig, 'credentials' | 'region' | 'profile' | 'signer'>
type AnyAccess = Access | { region: string; anonymous: true }

const silent = { trace() {}, debug() {}, info() {}, warn() {}, error() {} }

/** Credentials of the credential file or the environment, or anonymous access. Files are reread at each call. */
async function access(url: string, environment: NodeJS.ProcessEnv): Promise<AnyAccess> {
  const entry = await credentialFor('s3', url, environment)
  if (entry !== null) {
    const { key_id, secret_key, session_token, region, profile } = strings(entry, MEMBERS, 's3')
    if (key_id !== undefined && secret_key !== undefined) return keys(key_id, secret_key, session_token, region)
    // With a named profile, the chain ignores the variables of the environment.
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

async function chain(profile: string | undefined, region: string | undefined): Promise<AnyAccess> {
  const named = profile === undefined ? {} : { profile }
  const found = region ?? (await regionOf(profile ?? 'default'))
  const provider = fromNodeProviderChain({
    ...named,
    ignoreCache: true,
    logger: silent,
    clientConfig: { region: found },
  })
  const credentials = inTime(profile ?? '', provider)
  const options = { ...named, credentials, region: found }
  if (profile !== undefined) return options
  // Without credentials, access is anonymous, which suffices for a public bucket.
  return credentials().then(
    () => options,
    () => ({ region: found, anonymous: true }),
  )
}

/** Running requests for credentials, by profile. */
const requested = new Map<string, Promise<unknown>>()

/** Limits the time of a credential provider, and does not call it (perhaps a process) again while it still runs. */
function inTime<T, A extends unknown[]>(
  profile: string,
  provide: (...given: A) => Promise<T>,
): (...given: A) => Promise<T> {
  return async (...given) => {
    const answer =
      (requested.get(profile) as Promise<T> | undefined) ?? provide(...given).finally(() => requested.delete(profile))
    requested.set(profile, answer)
    const stop = new AbortController()
    const late = sleep(CREDENTIALS_MS_MAX, undefined, { signal: stop.signal }).then(() => {
      throw Object.assign(new Error('no answer'), { name: 'CredentialsProviderError', code: 'ETIMEDOUT' })
    })
    return Promise.race([answer, late]).finally(() => stop.abort())
  }
}

/** The region of a profile. */
async function regionOf(profile: string): Promise<string> {
  const { configFile, credentialsFile } = await loadSharedConfigFiles({ ignoreCache: true })
  return configFile[profile]?.region ?? credentialsFile[profile]?.region ?? REGION
}

const ANONYMOUS: Access = {
  credentials: { accessKeyId: '', secretAccessKey: '' },
  signer: { sign: async (request) => request },
}

function cloud(url: string, environment: NodeJS.ProcessEnv): Cloud<S3Client> {
  const { custom, ...location } = locate(url)
  const { bucket } = location
  // ETags of directory buckets look like an MD5 but are not.
  const hasMd5 = !bucket.endsWith('--x-s3')
  const file = environment[CREDENTIAL_FILE]
  let anonymous = false
  return {
    location,
    noun: 'bucket',
    credentials() {
      const advice = file
        ? `write the keys for ${location.url} into ${file}`
        : 'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, where the key is a temporary ' +
          'one), or AWS_PROFILE, to credentials that may list and read this bucket'
      return anonymous ? `no credentials were found: ${advice}` : advice
    },
    async open(agents) {
      const { region, ...found } = await access(url, environment)
      anonymous = 'anonymous' in found
      return new S3Client({
        region: region ?? REGION,
        ...('anonymous' in found ? ANONYMOUS : found),
        ...(custom === null ? { followRegionRedirects: true } : { endpoint: custom, forcePathStyle: true }),
        requestHandler: { httpAgent: agents.http, httpsAgent: agents.https },
        maxAttempts: 1,
        // Other storage may not support the newer checksums.
        requestChecksumCalculation: 'WHEN_REQUIRED',
        responseChecksumValidation: 'WHEN_REQUIRED',
        logger: silent,
      })
    },
    async page(client, prefix, token, abortSignal) {
      // Names may contain characters that XML cannot represent, so they are requested URL-encoded.
      const next = token === undefined ? {} : { ContinuationToken: token }
      const command = new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix, EncodingType: 'url', ...next })
      const answer = await client.send(command, { abortSignal })
      const { Name, KeyCount, Contents = [], EncodingType, IsTruncated, NextContinuationToken } = answer
      if ((Name ?? KeyCount ?? IsTruncated) === undefined) throw new ForeignResponse()
      const objects = Contents.map(({ Key = '', Size = 0, ETag = '' }) => {
        const version = bare(ETag)
        const path = EncodingType === 'url' ? decodeURIComponent(Key.replaceAll('+', ' ')) : Key
        // An empty object is never read, so its kind of encryption stays unknown.
        const isMd5 = hasMd5 && Size > 0 && /^[0-9a-f]{32}$/i.test(version)
        return { path, size: Size, version, md5: isMd5 ? version.toLowerCase() : null }
      })
      return { objects, next: IsTruncated ? NextContinuationToken : undefined }
    },
    async range(client, name, version, from, to, abortSignal) {
      const range = { Range: `bytes=${from}-${to - 1}`, IfMatch: `"${version}"` }
      const command = new GetObjectCommand({ Bucket: bucket, Key: name, ...range })
      const answer = await client.send(command, { abortSignal })
      const { Body, ETag, ContentLength, ContentEncoding, ServerSideEncryption } = answer
      // With KMS encryption the ETag looks like an MD5 but is not. The listing does not show the encryption.
      const isWithoutMd5 = isKms(ServerSideEncryption)
      // A response without a length, but with an encoding, was compressed by a proxy.
      const isOwn = ETag !== undefined && (ContentLength !== undefined || ContentEncoding === undefined)
      return { stream: Body as Readable, version: isOwn ? bare(ETag) : undefined, length: ContentLength, isWithoutMd5 }
    },
    async checksum(client, name, { version, size }, abortSignal) {
      const head = async (more: { IfMatch?: string; ChecksumMode?: 'ENABLED'; PartNumber?: number }) =>
        client.send(new HeadObjectCommand({ Bucket: bucket, Key: name, ...more }), { abortSignal })
      const answer = await head({ IfMatch: `"${version}"`, ChecksumMode: 'ENABLED' })
      const whole = wholeChecksum(answer, version)
      if (whole !== null) return whole
      const { algorithm, digest, parts } = partsChecksum(answer, hasMd5 ? version : '') ?? { algorithm: null }
      if (algorithm === null) return { missing: 'it was stored without a checksum that is compared here' }
      // Sent without If-Match, which some storage compares with the ETag of the part.
      const sizeOfPart = async (number: number) => (await head({ PartNumber: number })).ContentLength
      const partBytes = parts === 1 ? size : ((await sizeOfPart(1)) ?? size)
      // The last part has the rest. Storage that ignores the number returns the size of the object.
      const rest = size - (parts - 1) * partBytes
      const isEven = rest > 0 && rest <= partBytes && (parts <= 2 || (await sizeOfPart(parts)) === rest)
      if (isEven) return { algorithm, digest, partBytes }
      return { missing: 'it was uploaded in parts of different or unknown sizes, without a checksum of the whole' }
    },
    meaning: (error, name) => meaning(error, location, custom === null ? null : name),
  }
}

/** With KMS encryption, an ETag looks like an MD5 but is not. */
const isKms = (encryption: string | undefined) => encryption?.startsWith('aws:kms') ?? false

/**
 * Checksums that are compared, the cheapest first: MD5 takes five times as long as CRC32. S3 also has XXHASH, which
 * Node has no function for.
 */
const CHECKSUMS = ['CRC32', 'CRC32C', 'CRC64NVME', 'SHA1', 'SHA256', 'SHA512', 'MD5'] as const

const hex = (base64: string) => Buffer.from(base64, 'base64').toString('hex')

/** The checksum of the whole object; null if there is none that is compared. */
function wholeChecksum(answer: HeadObjectCommandOutput, version: string): Found | null {
  const algorithm = CHECKSUMS.find((name) => answer[`Checksum${name}`] !== undefined)
  const value = algorithm === undefined ? undefined : answer[`Checksum${algorithm}`]
  if (algorithm === undefined || value === undefined || PARTS.test(value)) return null
  // Storage that does not tell the type may give the checksum of the parts' checksums for an upload in parts.
  const isWhole = answer.ChecksumType === 'FULL_OBJECT' || (answer.ChecksumType === undefined && !PARTS.test(version))
  return isWhole ? { algorithm, digest: hex(value), partBytes: null } : null
}

/** The number of parts at the end of an ETag or a checksum of parts. */
const PARTS = /-(\d+)$/

/**
 * The checksum of the parts' checksums and the number of parts; null if there is none that is compared.
 *
 * @param etag without quotes; of an upload in parts, it is the MD5 of the parts' MD5s, unless KMS encrypted them
 */
function partsChecksum(answer: HeadObjectCommandOutput, etag: string) {
  for (const algorithm of CHECKSUMS) {
    const value = answer[`Checksum${algorithm}`] ?? ''
    const parts = PARTS.exec(value)
    if (parts !== null) return { algorithm, digest: hex(value.slice(0, parts.index)), parts: Number(parts[1]) }
  }
  const [, md5, count] = /^([0-9a-f]{32})-(\d+)$/i.exec(etag) ?? []
  if (md5 !== undefined && !isKms(answer.ServerSideEncryption))
    return { algorithm: 'MD5' as const, digest: md5.toLowerCase(), parts: Number(count) }
  return null
}

/** Removes the quotes and the weakness prefix of an ETag. */
const bare = (tag: string) => tag.replace(/^(?:W\/)?"?|"$/g, '')

/** @param custom name of the requested object, or of the listed directory, at an endpoint in the URL; null elsewhere */
function meaning(error: unknown, { bucket, endpoint }: Location, custom: string | null): Meaning | null {
  // The message of such an error may contain the command that was run for credentials.
  if (error instanceof Error && /^(?:CredentialsProviderError|TokenProviderError|ProviderError)$/.test(error.name)) {
    const endpoint = 'the profile that has the credentials'
    return { answer: { status: undefined, code: codeOf(error) }, failure: 'denied', endpoint }
  }
  // A response that is not XML, for example of a proxy, is an error that has the response.
  const { $response } = (error ?? {}) as { $response?: { statusCode?: number } }
  const status = error instanceof S3ServiceException ? error.$metadata.httpStatusCode : $response?.statusCode
  if (status === undefined) return null
  const code = error instanceof S3ServiceException ? error.name : codeOf(error)
  const answer = { status, code }
  if (DENIED.has(code)) return { answer, failure: 'denied' }
  if (code === 'RequestTimeTooSkewed') {
    // The library signs later requests of this client with the time of the response, so the request is retried.
    const { $metadata } = error as { $metadata?: { clockSkewCorrected?: true } }
    const isCorrected = $metadata?.clockSkewCorrected ?? false
    const advice = 'the clock of this machine differs from the clock of the storage: set it'
    return { answer, failure: isCorrected ? 'unavailable' : 'denied', advice }
  }
  if (code === 'InvalidObjectState')
    return { answer, failure: 'invalid', advice: 'the object is archived: restore it first' }
  const absent = code === 'NoSuchBucket' ? `the bucket '${bucket}' does not exist at ${endpoint}` : null
  if (custom !== null && (status === 400 || status === 404)) {
    const asked = absent ?? `it was requested for '${custom}' in the bucket '${bucket}'`
    const advice =
      'the bucket is the part of the path after the host. If the host has the bucket in its name, set ' +
      'AWS_ENDPOINT_URL_S3=SCHEME://HOST:PORT without it, and name the repository s3://BUCKET/PATH'
    return { answer, advice: `${asked}; ${advice}` }
  }
  if (absent !== null) return { answer, advice: absent }
  if (status === 301 || status === 307 || code === 'AuthorizationHeaderMalformed') {
    const advice = `the bucket '${bucket}' is in another region: set AWS_DEFAULT_REGION to it`
    return { answer, failure: 'invalid', advice }
  }
  return { answer }
}

export const open: OpenStore = async (url, environment) => {
  silence()
  // Otherwise the library would warn of old versions of Node at each start.
  process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED = 'true'
  return Store.open(cloud(url, environment))
}
