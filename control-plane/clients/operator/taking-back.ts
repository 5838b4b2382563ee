import type { KeyInventory } from './key-inventory.ts';
import type { KubeObject } from './kube.ts';
import { Unready } from './reporter.ts';

export interface TakingBackOptions {
  readonly inventory: KeyInventory;
  /** Tells whether all objects were listed for a minute. */
  readonly isListed: () => boolean;
  /** The other installations whose things objects for these APIs may take; undefined = for any API. */
  readonly takeFrom: (apiIds: readonly string[] | undefined) => readonly string[];
}

/**
 * Decides whether an object may take over what an object of its name and namespace declared before: a restore gives objects new
 * uids. The name is this object's, so no other object has it.
 */
export class TakingBack {
  readonly #options: TakingBackOptions;

  constructor(options: TakingBackOptions) {
    this.#options = options;
  }

  /**
   * Returns true if the object may take what `managedBy` declares, and false if that is not of its place. Throws Unready if it may
   * not yet, or not without the administrator's word.
   */
  may(object: KubeObject, managedBy: string | undefined, apiIds: readonly string[] | undefined): boolean {
    const { inventory, isListed, takeFrom } = this.#options;
    const installation = inventory.earlierOf(managedBy, object.metadata);
    if (installation === undefined) return false;
    if (!inventory.isOwn(installation) && !takeFrom(apiIds).includes(installation))
      throw new Unready(
        'OtherInstallation',
        `the installation ${installation} declared it. If that is gone or gives it up, add it to takeFrom of the KeyApi`,
      );
    if (!isListed())
      throw new Unready('Waiting', 'all objects are listed for a minute before one takes back its own');
    return true;
  }
}
