/**
 * A store in a folder: one file, in which a checkpoint replaces everything before it.
 *
 *     log       records, each after its length and the beginning of its SHA-256
 *     log.new   a checkpoint that is being written
 *     lock      the process that has opened it
 *
 * A last record torn by a crash is cut off: nothing of it was sent or acknowledged.
 */

import { createHash } from "node:crypto";
import { mkdir, open, readFile, rename, rm, type FileHandle } from "node:fs/promises";
import { resolve } from "node:path";
import { deserialize, serialize } from "node:v8";

import { LocalError, StoreError } from "./errors.js";
import type { Store, Stored } from "./store.js";

const HEAD = 12;
const opened = new Set<string>();

interface Entry {
  isCheckpoint: boolean;
  value: unknown;
}

export class FileStore implements Store {
  size = 0;
  private file: FileHandle | null = null;
  private end = 0;
  private readonly folder: string;

  constructor(
    folder: string,
    private readonly sync: boolean,
  ) {
    this.folder = resolve(folder);
  }

  private path(name: string): string {
    return `${this.folder}/${name}`;
  }

  async open(): Promise<Stored> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    await this.lock();
    try {
      await rm(this.path("log.new"), { force: true });
      this.file = await open(this.path("log"), "a+", 0o600);
      const { stored, end } = decodeAll(await readFile(this.path("log")));
      await this.file.truncate(end);
      if (this.sync) await syncFolder(this.folder);
      this.end = this.size = end;
      return stored;
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  async append(records: readonly unknown[]): Promise<void> {
    await this.write(this.handle(), encodeEntry({ isCheckpoint: false, value: records }));
  }

  async replace(checkpoint: unknown): Promise<void> {
    const data = encodeEntry({ isCheckpoint: true, value: checkpoint });
    const before = this.handle();
    const fresh = await open(this.path("log.new"), "w", 0o600);
    await fresh.writeFile(data);
    if (this.sync) await fresh.datasync();
    await fresh.close();
    await rename(this.path("log.new"), this.path("log"));
    if (this.sync) await syncFolder(this.folder);
    this.file = await open(this.path("log"), "a", 0o600);
    await before.close();
    this.end = data.length;
    this.size = 0;
  }

  async close(): Promise<void> {
    const { file } = this;
    this.file = null;
    await file?.close();
    if (opened.delete(this.folder)) await rm(this.path("lock"), { force: true });
  }

  private handle(): FileHandle {
    if (this.file === null) throw new StoreError(`the store ${this.folder} is closed`);
    return this.file;
  }

  private async write(file: FileHandle, data: Uint8Array): Promise<void> {
    await file.appendFile(data);
    if (this.sync) await file.datasync();
    this.end += data.length;
    this.size += data.length;
  }

  /** Two processes must not use one store: the second is refused while the first is running. */
  private async lock(): Promise<void> {
    if (opened.has(this.folder)) throw new LocalError(`the store ${this.folder} is in use in this process`);
    const path = this.path("lock");
    for (;;) {
      try {
        const file = await open(path, "wx", 0o600);
        await file.writeFile(String(process.pid));
        await file.close();
        opened.add(this.folder);
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
      const pid = Number(await readFile(path, "utf8").catch(() => "0"));
      if (pid && pid !== process.pid && isRunning(pid))
        throw new LocalError(`the store ${this.folder} is in use by process ${pid}; if it is not, delete ${path}`);
      await rm(path, { force: true });
    }
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function encodeEntry(entry: Entry): Uint8Array {
  const body = serialize(entry);
  const head = Buffer.alloc(HEAD);
  head.writeUInt32BE(body.length);
  digest(body).copy(head, 4);
  return Buffer.concat([head, body]);
}

const digest = (body: Uint8Array): Buffer => createHash("sha256").update(body).digest().subarray(0, HEAD - 4);

function decodeAll(data: Buffer): { stored: Stored; end: number } {
  const stored: Stored = { checkpoint: undefined, records: [] };
  let end = 0;
  while (end + HEAD <= data.length) {
    const body = data.subarray(end + HEAD, end + HEAD + data.readUInt32BE(end));
    if (body.length < data.readUInt32BE(end) || !digest(body).equals(data.subarray(end + 4, end + HEAD))) break;
    const entry = deserialize(body) as Entry;
    if (entry.isCheckpoint) [stored.checkpoint, stored.records] = [entry.value, []];
    else stored.records.push(...(entry.value as unknown[]));
    end += HEAD + body.length;
  }
  return { stored, end };
}

async function syncFolder(folder: string): Promise<void> {
  if (process.platform === "win32") return;
  const handle = await open(folder);
  await handle.sync();
  await handle.close();
}
