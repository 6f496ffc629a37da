/**
 * Images with buildah, in a store of their own below target/, and containers of them with crun, as an OCI runtime
 * starts them.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ask, capture } from '../../../scripts/lib/run.mjs'

export class Images {
  constructor(directory) {
    this.directory = directory
    mkdirSync(directory, { recursive: true })
    this.flags = [
      '--root',
      join(directory, 'storage'),
      '--runroot',
      join(directory, 'run'),
      '--storage-driver',
      'overlay',
    ]
    // No namespaces of the user's are needed for it, and RUN has this machine's network.
    this.env = { ...process.env, BUILDAH_ISOLATION: 'chroot' }
  }

  /** Runs buildah and returns its standard output. @throws {Error} with the end of its output */
  async do(...args) {
    const { code, text } = await capture('buildah', [args[0], ...this.flags, ...args.slice(1)], {
      env: this.env,
      quiet: true,
    })
    if (code !== 0)
      throw new Error(
        `buildah ${args.slice(0, 2).join(' ')} ended with ${code}: ${text.trim().split('\n').slice(-6).join(' | ')}`,
      )
    return text.trim()
  }

  has(image) {
    return (
      ask('buildah', ['inspect', ...this.flags, '--type', 'image', image], {
        env: this.env,
        stdio: ['ignore', 'pipe', 'ignore'],
        maxBuffer: 1 << 24,
      }) !== null
    )
  }

  /** The configuration of an image as Docker has it: Cmd, User, Healthcheck and so on. */
  async config(image) {
    const text = await this.do('inspect', '--type', 'image', image)
    return JSON.parse(text.slice(text.indexOf('{'))).Docker.config
  }

  /** Runs `use` with the mounted file system of a new container of an image, in which it may write. */
  async mounted(image, use) {
    const container = (await this.do('from', '--pull-never', image)).split('\n').at(-1)
    try {
      return await use((await this.do('mount', container)).split('\n').at(-1), container)
    } finally {
      await this.do('umount', container)
      await this.do('rm', container)
    }
  }
}

/**
 * crun refuses a machine that has both kinds of control groups mounted, also where it is to use none. Then it gets a
 * view of the machine without the second kind.
 */
const HYBRID = '/sys/fs/cgroup/unified'
const CRUN = existsSync(HYBRID)
  ? ['unshare', '--mount', 'sh', '-c', `umount ${HYBRID} && exec crun "$@"`, 'crun']
  : ['crun']

/** The mounts that every runtime makes. */
const MOUNTS = [
  { destination: '/proc', type: 'proc', source: 'proc' },
  {
    destination: '/dev',
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
  },
  {
    destination: '/dev/shm',
    type: 'tmpfs',
    source: 'shm',
    options: ['nosuid', 'noexec', 'nodev', 'mode=1777', 'size=65536k'],
  },
  { destination: '/tmp', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'nodev', 'mode=1777'] },
]

/**
 * A container over a mounted file system, started as Docker or Kubernetes would with the strictest settings: a root
 * that cannot be written, no capability, no new privileges. The network is this machine's.
 */
export class Container {
  /** @param options `args`, `user` as `uid:gid`, `env`, `cwd`, and `models`, mounted at /models */
  constructor(directory, root, { args, user, env, cwd, models }) {
    const [uid, gid] = user.split(':').map(Number)
    this.id = `nereid-heavy-${process.pid}-${Date.now()}`
    this.bundle = join(directory, this.id)
    this.state = join(directory, 'crun')
    mkdirSync(this.bundle, { recursive: true })
    const none = { bounding: [], effective: [], inheritable: [], permitted: [], ambient: [] }
    const spec = {
      ociVersion: '1.0.0',
      process: { terminal: false, user: { uid, gid }, args, env, cwd, capabilities: none, noNewPrivileges: true },
      root: { path: root, readonly: true },
      mounts: [...MOUNTS, { destination: '/models', type: 'bind', source: models, options: ['rbind', 'ro'] }],
      linux: { namespaces: ['pid', 'ipc', 'uts', 'mount'].map((type) => ({ type })) },
    }
    writeFileSync(join(this.bundle, 'config.json'), JSON.stringify(spec))
  }

  start() {
    const [program, ...args] = this.command('run', '--bundle', this.bundle, this.id)
    this.child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    this.log = ''
    for (const stream of [this.child.stdout, this.child.stderr])
      stream.on('data', (chunk) => (this.log = (this.log + chunk).slice(-20_000)))
    this.ended = new Promise((resolve) => this.child.on('close', (code, signal) => resolve(code ?? signal)))
    return this
  }

  command(...args) {
    return [...CRUN, '--root', this.state, '--cgroup-manager=disabled', ...args]
  }

  get running() {
    return this.child.exitCode === null && this.child.signalCode === null
  }

  /** Runs a command in the container; resolves with `{ code, text }`. */
  exec(...args) {
    const [program, ...rest] = this.command('exec', this.id, ...args)
    return capture(program, rest, { quiet: true })
  }

  /** Sends a signal to its first process, as `docker stop` does. */
  signal(name) {
    const [program, ...rest] = this.command('kill', this.id, name)
    return capture(program, rest, { quiet: true })
  }

  /** Ends what is left of it. */
  async remove() {
    if (this.running) await this.signal('KILL')
    await this.ended
    rmSync(this.bundle, { recursive: true, force: true })
  }
}
