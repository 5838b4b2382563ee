import { describe, expect, test } from 'vitest';
import { History } from './history.ts';

/** A key and its role, both of version 0, and what writes the versions after it. */
function history() {
  const all = new History();
  all.created('key', 'key', { enabled: true, hasRole: true });
  all.created('role', 'role', { enabled: true });
  const write = (id: string, outcome: 'complete' | 'unknown') =>
    all.ended(
      id,
      all.begin(id, { enabled: true, ...(id === 'key' ? { hasRole: true } : {}) }),
      outcome,
      'acks',
    );
  const floors = () => ({ key: all.floor('key'), role: all.floor('role') });
  const stale = (key: number, role: number, floor: { key: number; role: number }, code = 'VALID') => {
    const shown = [
      { id: 'key', version: key, floor: floor.key },
      { id: 'role', version: role, floor: floor.role },
    ];
    all.answered(shown, code, 'a verifier');
    return all.stale;
  };
  return { all, write, floors, stale };
}

describe('the checker of answers', () => {
  test('takes what was written, also by open changes', () => {
    const { write, floors, stale } = history();
    const begun = floors();
    write('key', 'complete');
    expect(stale(0, 0, begun)).toEqual([]);
    expect(stale(1, 0, floors())).toEqual([]);
  });

  test('finds an answer older than a complete change', () => {
    const { write, floors, stale } = history();
    write('role', 'complete');
    expect(stale(0, 0, floors())).toEqual([expect.stringContaining('STALE')]);
  });

  test('finds two states that never held together', () => {
    const { write, floors, stale } = history();
    const begun = floors();
    write('key', 'complete');
    write('role', 'complete');
    expect(stale(0, 1, begun)).toEqual([expect.stringContaining('never held at one moment')]);
  });

  test('takes a missing role only after its deletion', () => {
    const { all, write, stale } = history();
    expect(all.absent('role')).toBe(-1);
    const gone = all.begin('role', { enabled: false, isAbsent: true });
    all.ended('role', gone, 'complete', 'acks');
    const floors = () => ({ key: 0, role: all.floor('role') });
    expect(stale(0, all.absent('role'), floors(), 'INSUFFICIENT_PERMISSIONS')).toEqual([]);
    write('role', 'complete');
    expect(stale(0, all.absent('role'), floors(), 'INSUFFICIENT_PERMISSIONS')).toEqual([
      expect.stringContaining('STALE'),
    ]);
  });

  test('excuses writes of unknown outcome', () => {
    const { write, floors, stale } = history();
    write('key', 'unknown');
    write('key', 'complete');
    write('role', 'complete');
    expect(stale(1, 1, floors())).toEqual([]);
  });

  test('finds unfit verdicts and unwritten versions', () => {
    const { floors, stale } = history();
    expect(stale(0, 0, floors(), 'DISABLED')).toEqual([expect.stringContaining('VALID fits')]);
    expect(history().stale(1, 0, floors()).join()).toContain('nobody wrote');
  });
});
