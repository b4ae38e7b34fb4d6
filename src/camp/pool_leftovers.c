/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool that is killed cannot clean up: its workers end by themselves (their socket closes), but a
 * worker stuck in a loop does not, and the socket's folder stays. So the pool writes down what
 * there is to clean up, as JSON, and the next pool on the same campaign does it. Workers are found
 * by their random token, so that a process number used again by something else is never signalled.
 */
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "camp/pool_internal.h"
#include "io/io.h"

static const char folder_prefix[] = "sdclab-pool-";

void sdc__pool_leftovers_clean(const char *path) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_json *root = NULL;
    struct sdc_error err;
    if (!sdc__path_exists(path))
        return;
    if (sdc__read_whole(path, 1024 * 1024, &text, &err) == SDC_OK &&
        sdc__json_parse(text.data ? text.data : "", text.len, path, &root, &err) == SDC_OK) {
        const struct sdc_json *tokens = sdc__json_get(root, "tokens");
        for (size_t i = 0; tokens && i < sdc__json_count(tokens); i++) {
            const char *token;
            if (sdc__json_as_str(sdc__json_at(tokens, i), "token", &token, NULL) == SDC_OK &&
                strlen(token) == SDC_TOKEN_SIZE - 1)
                sdc__token_sweep(token);
        }
        const struct sdc_json *value = sdc__json_get(root, "folder");
        const char *folder;
        /* only a folder of the pool's own making */
        if (value && sdc__json_as_str(value, "folder", &folder, NULL) == SDC_OK &&
            strncmp(sdc__path_base(folder), folder_prefix, strlen(folder_prefix)) == 0 &&
            sdc__remove_tree(folder, &err) != SDC_OK)
            err.status = SDC_OK; /* a favour; nothing depends on it */
    }
    sdc__json_free(root);
    sdc__buf_release(&text);
    unlink(path);
}

enum sdc_status sdc__pool_leftovers_write(const struct sdc_pool *pool, struct sdc_error *err) {
    if (!pool->leftovers)
        return SDC_OK;
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "folder", pool->folder);
    sdc__jw_key(&w, "tokens");
    sdc__jw_arr(&w);
    for (unsigned i = 0; i < pool->n_workers; i++)
        if (pool->workers[i].state != SDC_WORKER_NONE)
            sdc__jw_str(&w, pool->workers[i].process.token);
    sdc__jw_arr_end(&w);
    sdc__jw_obj_end(&w);
    sdc__buf_putc(&text, '\n');
    enum sdc_status st = text.failed
                             ? SDC_ERR(err, SDC_NO_MEMORY, "no memory for the list of workers")
                             : sdc__write_whole(pool->leftovers, text.data, text.len, false, err);
    sdc__buf_release(&text);
    return st;
}
