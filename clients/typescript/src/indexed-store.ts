/**
 * A store in IndexedDB: one object store with an increasing key, in which a checkpoint replaces everything
 * before it.
 *
 * A page may be open in two tabs. Each opening of the store records its owner, and each transaction checks
 * that the owner is unchanged: the later tab takes over, and the earlier one stops before it sends anything
 * more. So a store never forks.
 */

import { StoreError } from "./errors.js";
import type { Store, Stored } from "./store.js";

const LOG = "log";
const OWNER = "owner";

interface Entry {
  isCheckpoint: boolean;
  value: unknown;
}

export class IndexedStore implements Store {
  size = 0;
  private database: IDBDatabase | null = null;
  private readonly owner = crypto.getRandomValues(new Uint32Array(4)).join("-");

  constructor(
    private readonly name: string,
    private readonly sync: boolean,
  ) {}

  async open(): Promise<Stored> {
    const opening = indexedDB.open(`antecede ${this.name}`, 1);
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore(LOG, { autoIncrement: true });
      opening.result.createObjectStore(OWNER);
    };
    this.database = await answer(opening);
    // Deleting the database, from another tab, need not wait for this one.
    this.database.onversionchange = () => this.database?.close();
    const found: Stored = { checkpoint: undefined, records: [] };
    await this.change((log, transaction) => {
      transaction.objectStore(OWNER).put(this.owner, OWNER);
      const reading = log.getAll();
      reading.onsuccess = () => {
        for (const entry of reading.result as Entry[]) {
          if (!entry.isCheckpoint) found.records.push(...(entry.value as unknown[]));
          else [found.checkpoint, found.records] = [entry.value, []];
        }
      };
    });
    this.size = found.records.reduce((sum: number, record) => sum + sizeOf(record), 0);
    return found;
  }

  append(records: readonly unknown[]): Promise<void> {
    for (const record of records) this.size += sizeOf(record);
    return this.changeOwn((log) => log.add({ isCheckpoint: false, value: records } satisfies Entry));
  }

  replace(checkpoint: unknown): Promise<void> {
    this.size = 0;
    return this.changeOwn((log) => {
      log.clear();
      log.add({ isCheckpoint: true, value: checkpoint } satisfies Entry);
    });
  }

  close(): Promise<void> {
    this.database?.close();
    this.database = null;
    return Promise.resolve();
  }

  /** A transaction that changes nothing if another owner has opened this store. */
  private changeOwn(change: (log: IDBObjectStore) => void): Promise<void> {
    let isForeign = false;
    const changed = this.change((log, transaction) => {
      change(log); // now, since values may change after this call; undone if the owner has changed
      const reading = transaction.objectStore(OWNER).get(OWNER);
      reading.onsuccess = () => {
        isForeign = reading.result !== this.owner;
        if (isForeign) transaction.abort();
      };
    });
    return changed.catch((error: unknown) => {
      if (!isForeign) throw error;
      throw new StoreError(`another tab has opened the store '${this.name}'; this one stops`);
    });
  }

  private change(change: (log: IDBObjectStore, transaction: IDBTransaction) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.database === null) throw new StoreError(`the store '${this.name}' is closed`);
      const durability = this.sync ? "strict" : "relaxed";
      const transaction = this.database.transaction([LOG, OWNER], "readwrite", { durability });
      const failed = (): void =>
        reject(new StoreError(`the store '${this.name}' cannot be written: ${transaction.error?.message ?? "aborted"}`));
      transaction.oncomplete = () => resolve();
      transaction.onabort = transaction.onerror = failed;
      change(transaction.objectStore(LOG), transaction);
    });
  }
}

function answer<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () =>
      reject(new StoreError(`the browser gives no store: ${request.error?.message ?? "no reason"}`));
  });
}

/** About how many bytes a record takes: those of its longest field. */
function sizeOf(record: unknown): number {
  let size = 32;
  if (typeof record === "object" && record !== null)
    for (const value of Object.values(record)) if (value instanceof Uint8Array) size += value.length;
  return size;
}
