// Asking again and again, as long as somebody looks at the page.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ask } from './api.js';

/** Between two requests of what a user may not see, in milliseconds: each refusal is in the audit trail. */
const REFUSED_EVERY = 60_000;

/**
 * What `load` has resolved with last, asked for anew `every` milliseconds. A hidden page asks nothing, so that its session ends. With 0
 * it is asked once, and stays as it is when the page is seen again: somebody may be editing it.
 */
export function usePoll(load, every, inputs = []) {
  const [state, set] = useState({ data: undefined, error: undefined });
  const turn = useRef(0);
  const isRefused = useRef(false);
  const refresh = useCallback(async () => {
    const mine = ++turn.current;
    try {
      const data = await load();
      isRefused.current = false;
      if (mine === turn.current) set({ data, error: undefined });
    } catch (error) {
      isRefused.current = error.status === 403;
      if (mine === turn.current) set((before) => ({ ...before, error }));
    }
  }, inputs);
  useEffect(() => {
    set({ data: undefined, error: undefined });
    let timer;
    let isOver = false;
    let hasAsked = false;
    const again = () => {
      hasAsked = true;
      return refresh();
    };
    const look = async () => {
      if (!document.hidden) await again();
      if (!isOver && every) timer = setTimeout(look, isRefused.current ? Math.max(every, REFUSED_EVERY) : every);
    };
    look();
    const seen = () => document.hidden || (hasAsked && !every) || again();
    document.addEventListener('visibilitychange', seen);
    return () => {
      isOver = true;
      turn.current += 1;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    };
  }, [refresh, every]);
  return { ...state, refresh };
}

export const useAsk = (path, every = 0) => usePoll(() => ask(path), every, [path]);
