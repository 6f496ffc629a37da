/**
 * Identities of machines and pods: the storage request has the credential that a service of the cloud gave out. The
 * services and the storage are fakes on loopback; each client runs in a process of its own, because the libraries read
 * the environment and the home directory once. Services with fixed addresses are reached through a proxy.
 */
import { spawn, spawnSync } from 'node:child_process'
import { createHash, createPublicKey, generateKeyPairSync, verify } from 'node:crypto'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { connect, type AddressInfo, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { ROOT } from '../server/harness.js'

interface Asked {
  /** Host as the client knows it. */
  host: string
  method: string
  path: string
  query: URLSearchParams
  headers: IncomingHttpHeaders
  body: string
}
type Reply = { status?: number; headers?: Record<string, string>; body: string | object }

let home: string
let http: string
let https: string
let proxy: string
const closing: Server[] = []
const sockets = new Set<Socket>()

/** The service that gives credentials, one for each test. */
let service: (asked: Asked) => Reply = () => ({ status: 404, body: '' })
/** Responses of the storage in place of listings, one for each request. */
let refusals: Reply[] = []
/** Requests to the service, and to the storage. */
let services: Asked[] = []
let listings: Asked[] = []

const XML = { 'content-type': 'application/xml' }
const LISTINGS: Record<string, Reply> = {
  '/models': {
    headers: XML,
    body:
      '<ListBucketResult><Name>models</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents>' +
      '<Key>m/1/x</Key><Size>1</Size><ETag>"e"</ETag></Contents></ListBucketResult>',
  },
  '/storage/v1/b/models/o': { body: { items: [{ name: 'm/1/x', size: '1', generation: '7' }] } },
  '/account/models': {
    headers: XML,
    body:
      '<?xml version="1.0"?><EnumerationResults ContainerName="models"><Blobs><Blob><Name>m/1/x</Name>' +
      '<Properties><Content-Length>1</Content-Length><Etag>7</Etag><BlobType>BlockBlob</BlobType></Properties>' +
      '</Blob></Blobs><NextMarker/></EnumerationResults>',
  },
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '', 'http://x')
  const asked = {
    host: request.headers.host ?? '',
    method: request.method ?? '',
    path: url.pathname.replace(/(.)\/$/, '$1'),
    query: url.searchParams,
    headers: request.headers,
    body: await text(request),
  }
  const listing = LISTINGS[asked.path]
  ;(listing === undefined ? services : listings).push(asked)
  const { status = 200, headers = {}, body } = listing === undefined ? service(asked) : (refusals.shift() ?? listing)
  const isText = typeof body === 'string'
  response.writeHead(status, { ...(isText ? {} : { 'content-type': 'application/json' }), ...headers })
  response.end(isText ? body : JSON.stringify(body))
}

async function listen(server: Server): Promise<number> {
  closing.push(server)
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

/** Writes a file below the home directory and returns its path. */
function file(name: string, content: string): string {
  const path = join(home, name)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, content)
  return path
}

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'nereid-identities-'))
  const names = 'subjectAltName=IP:127.0.0.1,DNS:oauth2.googleapis.com,DNS:login.microsoftonline.com'
  const made = spawnSync(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-days',
      '2',
      '-subj',
      '/CN=fake',
      '-addext',
      names,
      '-keyout',
      join(home, 'key.pem'),
      '-out',
      join(home, 'cert.pem'),
    ],
    { encoding: 'utf8' },
  )
  if (made.status !== 0) throw new Error(`openssl made no certificate: ${made.error?.message ?? made.stderr}`)
  const handle = (request: IncomingMessage, response: ServerResponse) => void answer(request, response)
  http = `127.0.0.1:${await listen(createServer(handle))}`
  const pem = { key: readFileSync(join(home, 'key.pem')), cert: readFileSync(join(home, 'cert.pem')) }
  const tlsPort = await listen(createTlsServer(pem, handle))
  https = `127.0.0.1:${tlsPort}`
  // Connects every host to the fake.
  const tunnels = createServer().on('connect', (_, socket: Socket) => {
    const target = connect(tlsPort, '127.0.0.1', () => socket.write('HTTP/1.1 200 OK\r\n\r\n'))
    target.pipe(socket).pipe(target)
    for (const one of [socket, target]) one.on('error', () => one.destroy())
  })
  proxy = `http://127.0.0.1:${await listen(tunnels)}`
})

beforeEach(() => {
  services = []
  listings = []
  refusals = []
})

afterAll(() => {
  for (const server of closing) server.close()
  for (const socket of sockets) socket.destroy()
  rmSync(home, { recursive: true, force: true })
})

/**
 * Lists a repository, `times` times in a row, in a process with this environment. Returns the names of the last list,
 * or the failure.
 */
async function list(url: string, environment: NodeJS.ProcessEnv, times = 1): Promise<string[] | string> {
  const client = pathToFileURL(join(ROOT, 'dist/stores', `${url.slice(0, 2)}.mjs`)).href
  const program = `
    const { open } = await import(${JSON.stringify(client)})
    const names = []
    try {
      const client = await open(${JSON.stringify(url)}, process.env)
      for (let i = 0; i < ${times}; i += 1) {
        names.length = 0
        const signal = new AbortController().signal
        for await (const page of client.list(signal)) names.push(...page.map(({ path }) => path))
      }
      client.close()
      console.log(JSON.stringify(names))
    } catch (error) {
      console.log(JSON.stringify(error.failure + ' ' + error.message))
      process.exit()
    }`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    env: {
      PATH: process.env.PATH,
      HOME: home,
      NODE_EXTRA_CA_CERTS: join(home, 'cert.pem'),
      NO_PROXY: '127.0.0.1',
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [printed, problems] = await Promise.all([text(child.stdout), text(child.stderr)])
  if (problems !== '') throw new Error(problems)
  return JSON.parse(printed) as string[] | string
}

const NAMES = ['m/1/x']
const HOUR_MS = 3_600_000
const inAnHour = () => new Date(Date.now() + HOUR_MS).toISOString()

describe('AWS', () => {
  const place = () => `s3://${http}/models`
  /** Key and session token of the storage requests. */
  const keys = () =>
    listings.map(({ headers }) => [
      /Credential=([^/]+)/.exec(headers.authorization ?? '')?.[1],
      headers['x-amz-security-token'],
    ])

  const credentials = (id: string) =>
    `<Credentials><AccessKeyId>${id}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>` +
    `<SessionToken>token-of-${id}</SessionToken><Expiration>${inAnHour()}</Expiration></Credentials>`
  /** The security token service: gives keys named after the role. */
  const sts = (asked: Asked): Reply => {
    const fields = new URLSearchParams(asked.body)
    const action = fields.get('Action') ?? ''
    const id = `${fields.get('RoleArn')?.split('/')[1]}${fields.get('WebIdentityToken') ?? ''}`
    const user = '<Arn>arn:aws:sts::1:assumed-role/r/s</Arn><AssumedRoleId>A</AssumedRoleId>'
    const result = `${credentials(id)}<AssumedRoleUser>${user}</AssumedRoleUser>`
    const xmlns = 'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"'
    const body = `<${action}Response ${xmlns}><${action}Result>${result}</${action}Result></${action}Response>`
    return { headers: { 'content-type': 'text/xml' }, body }
  }
  const expired: Reply = { status: 400, headers: XML, body: '<Error><Code>ExpiredToken</Code></Error>' }
  const json = (id: string) => ({
    Code: 'Success',
    AccessKeyId: id,
    SecretAccessKey: 's',
    Token: `token-of-${id}`,
    Expiration: inAnHour(),
    AccountId: '1',
  })

  test('a web identity (a Kubernetes service account): its token is exchanged for keys', async () => {
    service = sts
    const environment = {
      AWS_ROLE_ARN: 'arn:aws:iam::1:role/reader',
      AWS_WEB_IDENTITY_TOKEN_FILE: file('web-token', 'First'),
      AWS_ENDPOINT_URL_STS: `http://${http}/sts`,
      AWS_REGION: 'eu-west-3',
      AWS_EC2_METADATA_DISABLED: 'true',
    }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(keys()).toEqual([['readerFirst', 'token-of-readerFirst']])
    expect(listings[0]?.headers.authorization).toContain('/eu-west-3/s3/')
    expect(services[0]?.headers.authorization).toBeUndefined()
    expect(new URLSearchParams(services[0]?.body).get('Action')).toBe('AssumeRoleWithWebIdentity')
  })

  test('a web identity whose keys are rejected is exchanged again', async () => {
    service = (asked) => {
      file('web-token', 'Second')
      return sts(asked)
    }
    refusals = [expired]
    const environment = {
      AWS_ROLE_ARN: 'arn:aws:iam::1:role/reader',
      AWS_WEB_IDENTITY_TOKEN_FILE: file('web-token', 'First'),
      AWS_ENDPOINT_URL_STS: `http://${http}/sts`,
      AWS_EC2_METADATA_DISABLED: 'true',
    }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(keys().map(([id]) => id)).toEqual(['readerFirst', 'readerSecond'])
    expect(services).toHaveLength(2)
  })

  test('a task of ECS or a pod identity: the service has the token of the environment', async () => {
    service = ({ path, headers }) =>
      path === '/ecs' && headers.authorization === 'task-secret' ? { body: json('AKIDECS') } : { status: 403, body: '' }
    const environment = { AWS_CONTAINER_CREDENTIALS_FULL_URI: `http://${http}/ecs` }
    const token = file('ecs-token', 'task-secret')
    expect(await list(place(), { ...environment, AWS_CONTAINER_AUTHORIZATION_TOKEN: 'task-secret' })).toEqual(NAMES)
    expect(await list(place(), { ...environment, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: token })).toEqual(NAMES)
    expect(keys()).toEqual([
      ['AKIDECS', 'token-of-AKIDECS'],
      ['AKIDECS', 'token-of-AKIDECS'],
    ])
  })

  test('an instance of EC2: its metadata service, version 2', async () => {
    service = ({ method, path, headers }) => {
      if (method === 'PUT' && path === '/latest/api/token' && headers['x-aws-ec2-metadata-token-ttl-seconds'])
        return { body: 'session' }
      if (headers['x-aws-ec2-metadata-token'] !== 'session') return { status: 401, body: '' }
      const role = '/latest/meta-data/iam/security-credentials'
      return path === role
        ? { body: 'node-role' }
        : path === `${role}/node-role`
          ? { body: json('AKIDNODE') }
          : { status: 404, body: '' }
    }
    const environment = { AWS_EC2_METADATA_SERVICE_ENDPOINT: `http://${http}` }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(keys()).toEqual([['AKIDNODE', 'token-of-AKIDNODE']])
  })

  test('a profile with a role: the keys of its source profile assume it', async () => {
    service = sts
    const config = file(
      'aws-config',
      '[profile base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = s\n\n[profile models]\n' +
        'role_arn = arn:aws:iam::1:role/models\nsource_profile = base\nregion = eu-north-1\nexternal_id = partner\n',
    )
    const environment = { AWS_CONFIG_FILE: config, AWS_PROFILE: 'models', AWS_ENDPOINT_URL_STS: `http://${http}/sts` }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(keys()).toEqual([['models', 'token-of-models']])
    expect(services[0]?.headers.authorization).toContain('Credential=AKIDBASE/')
    expect(Object.fromEntries(new URLSearchParams(services[0]?.body))).toMatchObject({
      Action: 'AssumeRole',
      RoleArn: 'arn:aws:iam::1:role/models',
      ExternalId: 'partner',
    })
    expect(listings[0]?.headers.authorization).toContain('/eu-north-1/s3/')
  })

  test('a profile with a web identity', async () => {
    service = sts
    const token = file('web-token', 'Profile')
    const config = file(
      'aws-config',
      `[profile models]\nrole_arn = arn:aws:iam::1:role/models\nweb_identity_token_file = ${token}\n`,
    )
    const environment = { AWS_CONFIG_FILE: config, AWS_PROFILE: 'models', AWS_ENDPOINT_URL_STS: `http://${http}/sts` }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(keys()).toEqual([['modelsProfile', 'token-of-modelsProfile']])
  })

  test('a profile with SSO: the token of its last login is exchanged for keys', async () => {
    service = ({ path, query, headers }) =>
      path === '/sso/federation/credentials' &&
      headers['x-amz-sso_bearer_token'] === 'login' &&
      query.get('role_name') === 'Reader' &&
      query.get('account_id') === '1'
        ? {
            body: {
              roleCredentials: {
                accessKeyId: 'AKIDSSO',
                secretAccessKey: 's',
                sessionToken: 'token-of-AKIDSSO',
                expiration: Date.now() + HOUR_MS,
              },
            },
          }
        : { status: 403, body: '' }
    const config = file(
      'aws-config',
      '[sso-session company]\nsso_region = us-east-1\nsso_start_url = https://company/start\n\n[profile models]\n' +
        'sso_session = company\nsso_account_id = 1\nsso_role_name = Reader\n',
    )
    const cached = createHash('sha1').update('company').digest('hex')
    file(`.aws/sso/cache/${cached}.json`, JSON.stringify({ accessToken: 'login', expiresAt: inAnHour() }))
    const environment = { AWS_CONFIG_FILE: config, AWS_PROFILE: 'models', AWS_ENDPOINT_URL_SSO: `http://${http}/sso` }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(keys()).toEqual([['AKIDSSO', 'token-of-AKIDSSO']])
  })

  test('a service that refuses: the message says so, without secrets', async () => {
    service = () => ({
      status: 403,
      headers: { 'content-type': 'text/xml' },
      body: '<ErrorResponse><Error><Code>AccessDenied</Code><Message>hidden-secret</Message></Error></ErrorResponse>',
    })
    const config = file(
      'aws-config',
      '[profile base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = hidden-secret\n\n[profile models]\n' +
        'role_arn = arn:aws:iam::1:role/models\nsource_profile = base\n',
    )
    const environment = { AWS_CONFIG_FILE: config, AWS_PROFILE: 'models', AWS_ENDPOINT_URL_STS: `http://${http}/sts` }
    const failed = await list(place(), environment)
    expect(failed).toMatch(/^denied s3:.* cannot be listed: /)
    expect(failed).toContain('AccessDenied')
    expect(failed).not.toContain('hidden-secret')
    expect(listings).toEqual([])
  })
})

describe('Google', () => {
  const tokens = () => listings.map(({ headers }) => headers.authorization)

  test('a key of a service account: a signed assertion is exchanged for a token', async () => {
    const { privateKey, publicKey } = generateKeyPairSync('rsa', {
      modulusLength: 2048,
      publicKeyEncoding: { type: 'spki', format: 'pem' },
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    })
    service = ({ host, path, body }) => {
      const [head = '', claims = '', signature = ''] = new URLSearchParams(body).get('assertion')?.split('.') ?? []
      const signed = Buffer.from(`${head}.${claims}`)
      if (!verify('RSA-SHA256', signed, createPublicKey(publicKey), Buffer.from(signature, 'base64url')))
        return { status: 400, body: { error: 'invalid_grant' } }
      const { iss, scope } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as Record<string, string>
      expect([host, path, iss, scope]).toEqual([
        'oauth2.googleapis.com',
        '/token',
        'reader@project.iam.gserviceaccount.com',
        'https://www.googleapis.com/auth/devstorage.read_only',
      ])
      return { body: { access_token: `token${services.length}`, expires_in: 3600, token_type: 'Bearer' } }
    }
    const key = file(
      'google-key.json',
      JSON.stringify({
        type: 'service_account',
        project_id: 'project',
        private_key_id: '1',
        private_key: privateKey,
        client_email: 'reader@project.iam.gserviceaccount.com',
        client_id: '1',
        token_uri: 'https://oauth2.googleapis.com/token',
      }),
    )
    // A token that the storage rejects is replaced; one that it takes is used again.
    refusals = [{ status: 401, body: { error: { errors: [{ reason: 'authError' }] } } }]
    const environment = { STORAGE_EMULATOR_HOST: http, GOOGLE_APPLICATION_CREDENTIALS: key, HTTPS_PROXY: proxy }
    expect(await list('gs://models', environment, 2)).toEqual(NAMES)
    expect(tokens()).toEqual(['Bearer token1', 'Bearer token2', 'Bearer token2'])
    const credentials = file('credentials.json', JSON.stringify({ gs: { '': key } }))
    const named = { STORAGE_EMULATOR_HOST: http, HTTPS_PROXY: proxy, TRITON_CLOUD_CREDENTIAL_PATH: credentials }
    expect(await list('gs://models', named)).toEqual(NAMES)
    expect(tokens().at(-1)).toBe('Bearer token3')
  })

  test('the metadata service of a machine, and so workload identity', async () => {
    service = ({ path, headers, query }) => {
      const flavor = { 'metadata-flavor': 'Google' }
      if (headers['metadata-flavor'] !== 'Google') return { status: 403, body: '' }
      if (path === '/computeMetadata/v1/instance') return { headers: flavor, body: 'x' }
      if (path !== '/computeMetadata/v1/instance/service-accounts/default/token')
        return { status: 404, headers: flavor, body: '' }
      expect(query.get('scopes')).toBe('https://www.googleapis.com/auth/devstorage.read_only')
      return { headers: flavor, body: { access_token: 'of-the-machine', expires_in: 3600, token_type: 'Bearer' } }
    }
    const environment = { GCE_METADATA_HOST: http, STORAGE_EMULATOR_HOST: http }
    expect(await list('gs://models', environment)).toEqual(NAMES)
    expect(tokens()).toEqual(['Bearer of-the-machine'])
    // No project is looked for.
    expect(services).toHaveLength(2)
  })
})

describe('Azure', () => {
  // The library sends tokens over TLS only.
  const place = () => `as://https://${https}/account/models`
  const tokens = () => listings.map(({ headers }) => headers.authorization)
  const managed = { AZURE_STORAGE_AUTH_TYPE: 'managed_identity' }
  const STORAGE = 'https://storage.azure.com'
  const token = (name: string) => ({
    access_token: name,
    expires_in: '3600',
    expires_on: String(Math.floor(Date.now() / 1000) + 3600),
    resource: STORAGE,
    token_type: 'Bearer',
  })

  test('a managed identity of a machine: its metadata service', async () => {
    service = ({ path, headers, query }) =>
      path === '/metadata/identity/oauth2/token' && headers.metadata === 'true' && query.get('resource') === STORAGE
        ? { body: token(`machine-${query.get('client_id') ?? 'own'}`) }
        : { status: 400, body: {} }
    const environment = { ...managed, AZURE_POD_IDENTITY_AUTHORITY_HOST: `http://${http}` }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(await list(place(), { ...environment, AZURE_STORAGE_CLIENT_ID: 'chosen' })).toEqual(NAMES)
    expect(tokens()).toEqual(['Bearer machine-own', 'Bearer machine-chosen'])
  })

  test('a managed identity of App Service: its endpoint and its secret', async () => {
    service = ({ path, headers, query }) =>
      path === '/msi/token' && headers['x-identity-header'] === 'app-secret' && query.get('resource') === STORAGE
        ? { body: token('app') }
        : { status: 400, body: {} }
    const environment = { ...managed, IDENTITY_ENDPOINT: `http://${http}/msi/token`, IDENTITY_HEADER: 'app-secret' }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(tokens()).toEqual(['Bearer app'])
  })

  test('workload identity: the token of the pod is exchanged', async () => {
    service = ({ host, path, body }) => {
      const authority = 'https://login.microsoftonline.com/tenant'
      if (path.endsWith('/openid-configuration'))
        return {
          body: {
            issuer: `${authority}/v2.0`,
            token_endpoint: `${authority}/oauth2/v2.0/token`,
            authorization_endpoint: `${authority}/oauth2/v2.0/authorize`,
            jwks_uri: `${authority}/keys`,
          },
        }
      const fields = Object.fromEntries(new URLSearchParams(body))
      return host === 'login.microsoftonline.com' &&
        path === '/tenant/oauth2/v2.0/token' &&
        fields.client_assertion === 'of-the-pod' &&
        fields.client_id === 'client' &&
        fields.scope?.startsWith(STORAGE)
        ? { body: { ...token('workload'), expires_in: 3600 } }
        : { status: 400, body: { error: 'invalid_client', error_description: 'hidden-secret' } }
    }
    const environment = {
      AZURE_STORAGE_AUTH_TYPE: 'default',
      AZURE_TENANT_ID: 'tenant',
      AZURE_CLIENT_ID: 'client',
      AZURE_FEDERATED_TOKEN_FILE: file('pod-token', 'of-the-pod'),
      AZURE_AUTHORITY_HOST: 'https://login.microsoftonline.com/',
      HTTPS_PROXY: proxy,
    }
    expect(await list(place(), environment)).toEqual(NAMES)
    expect(tokens()).toEqual(['Bearer workload'])
  })

  test('a service that refuses: the message says so, without what it answered', async () => {
    service = () => ({ status: 400, body: { error: 'invalid_request', error_description: 'hidden-secret' } })
    const failed = await list(place(), { ...managed, AZURE_POD_IDENTITY_AUTHORITY_HOST: `http://${http}` })
    expect(failed).toMatch(/^denied as:.* cannot be listed: Azure's token service /)
    expect(failed).not.toContain('hidden-secret')
    expect(listings).toEqual([])
  })
})
