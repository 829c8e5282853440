#include "@name@.h"
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum { OK, WARNING, DISCARD, ERROR, FATAL } Status;
typedef unsigned int Reference;
typedef const char *String;
typedef void (*Log)(void *environment, Status status, String category, String message);

/* Value references: 0 is time, then the states, their rates, inputs, parameters and outputs. */
enum { N = @n@, NU = @nu@, NP = @np@, NY = @ny@, X = 1, D = X + N, U = D + N, P = U + NU, Y = P + NP, END = Y + NY };

typedef struct {
    double t, x[N], u[@size_u@], p[@size_p@], d_x[N], d_u[@size_u@], d_p[@size_p@];
    void *environment;
    Log log;
} Instance;

/* Status and message of what a function of the mechanism has returned. */
static Status told(Instance *s, int result)
{
    static const char *const messages[] = {
        "", "Rows of constraints come near to being dependent, as beside a singular pose.", "A number is not finite.",
        "The state is too far from the constraints, or the step too long."};
    if (result == @capitals@_OK)
        return OK;
    if (s->log)
        s->log(s->environment, result == @capitals@_NOT_FINITE ? ERROR : DISCARD, "logStatusError", messages[result]);
    return result == @capitals@_NOT_FINITE ? ERROR : DISCARD;
}

static Status refused(void *s)
{
    Instance *own = s;
    if (own && own->log)
        own->log(own->environment, ERROR, "logStatusError", "There is no such variable, or function.");
    return ERROR;
}

static int rates(Instance *s, double *d)
{
    return @rates@;
}

static int outputs(Instance *s, double *y)
{
    int result = 0;
    (void)s;
    (void)y;
    @readers@
    return result;
}

static void reset(Instance *s)
{
    static const double x[] = {@start_x@}, u[] = {@start_u@}, p[] = {@start_p@};
    s->t = @start_t@;
    memcpy(s->x, x, sizeof x);
    memcpy(s->u, u, sizeof u);
    memcpy(s->p, p, sizeof p);
    memset(s->d_x, 0, sizeof s->d_x);
}

static void *instance(String token, void *environment, Log log)
{
    Instance *s;
    if (!token || strcmp(token, "@token@") != 0) {
        if (log)
            log(environment, ERROR, "logStatusError", "The instantiation token is that of another model.");
        return NULL;
    }
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->environment = environment;
    s->log = log;
    reset(s);
    return s;
}

const char *fmi3GetVersion(void)
{
    return "3.0";
}

void *fmi3InstantiateModelExchange(String name, String token, String path, bool visible, bool logging, void *environment, Log log)
{
    (void)name; (void)path; (void)visible; (void)logging;
    return instance(token, environment, log);
}

void *fmi3InstantiateCoSimulation(String name, String token, String path, bool visible, bool logging, bool events, bool early,
                                  const Reference required[], size_t count, void *environment, Log log, void (*update)(void))
{
    (void)name; (void)path; (void)visible; (void)logging; (void)events; (void)early; (void)required; (void)count; (void)update;
    return instance(token, environment, log);
}

void *fmi3InstantiateScheduledExecution(String name, String token, String path, bool visible, bool logging, void *environment, Log log,
                                        void (*clock)(void), void (*lock)(void), void (*unlock)(void))
{
    (void)name; (void)token; (void)path; (void)visible; (void)logging; (void)environment; (void)log; (void)clock; (void)lock; (void)unlock;
    return NULL;
}

void fmi3FreeInstance(void *s)
{
    free(s);
}

Status fmi3SetDebugLogging(void *s, bool on, size_t count, const String categories[])
{
    (void)s; (void)on; (void)count; (void)categories;
    return OK;
}

Status fmi3EnterInitializationMode(void *s, bool tolerant, double tolerance, double start, bool stops, double stop)
{
    (void)tolerant; (void)tolerance; (void)stops; (void)stop;
    ((Instance *)s)->t = start;
    return OK;
}

Status fmi3EnterEventMode(void *s) { (void)s; return OK; }
Status fmi3EnterContinuousTimeMode(void *s) { (void)s; return OK; }
Status fmi3EnterStepMode(void *s) { (void)s; return OK; }
Status fmi3Terminate(void *s) { (void)s; return OK; }
Status fmi3EvaluateDiscreteStates(void *s) { (void)s; return OK; }

Status fmi3Reset(void *s)
{
    reset(s);
    return OK;
}

Status fmi3GetFloat64(void *instance, const Reference r[], size_t n, double values[], size_t count)
{
    Instance *s = instance;
    double d[N] = {0}, y[@size_y@] = {0};
    int has_rates = 0, has_outputs = 0;
    size_t k;
    if (n != count)
        return refused(s);
    for (k = 0; k < n; ++k) {
        if (r[k] >= END)
            return refused(s);
        if (r[k] >= D && r[k] < U && !has_rates) {
            const Status status = told(s, rates(s, d));
            if (status != OK)
                return status;
            has_rates = 1;
        }
        if (r[k] >= Y && !has_outputs) {
            const Status status = told(s, outputs(s, y));
            if (status != OK)
                return status;
            has_outputs = 1;
        }
        values[k] = r[k] < X ? s->t : r[k] < D ? s->x[r[k] - X] : r[k] < U ? d[r[k] - D] : r[k] < P ? s->u[r[k] - U] : r[k] < Y ? s->p[r[k] - P] : y[r[k] - Y];
    }
    return OK;
}

Status fmi3SetFloat64(void *instance, const Reference r[], size_t n, const double values[], size_t count)
{
    Instance *s = instance;
    size_t k;
    if (n != count)
        return refused(s);
    for (k = 0; k < n; ++k) {
        if (r[k] >= X && r[k] < D)
            s->x[r[k] - X] = values[k];
        else if (r[k] >= U && r[k] < P)
            s->u[r[k] - U] = values[k];
        else if (r[k] >= P && r[k] < Y)
            s->p[r[k] - P] = values[k];
        else
            return refused(s);
    }
    return OK;
}

Status fmi3GetFMUState(void *instance, void **state)
{
    if (!*state)
        *state = malloc(sizeof(Instance));
    if (!*state)
        return ERROR;
    memcpy(*state, instance, sizeof(Instance));
    return OK;
}

Status fmi3SetFMUState(void *instance, void *state)
{
    Instance *s = instance;
    void *environment = s->environment;
    const Log log = s->log;
    memcpy(s, state, sizeof(Instance));
    s->environment = environment;
    s->log = log;
    return OK;
}

Status fmi3FreeFMUState(void *instance, void **state)
{
    (void)instance;
    free(*state);
    *state = NULL;
    return OK;
}

Status fmi3GetDirectionalDerivative(void *instance, const Reference unknowns[], size_t nu, const Reference knowns[], size_t nk,
                                    const double seed[], size_t ns, double sensitivity[], size_t no)
{
    Instance *s = instance;
    double d[N], dd[N], y[@size_y@], d_y[@size_y@] = {0};
    int result;
    Status status;
    size_t k;
    (void)y;
    if (nu != no || nk != ns)
        return refused(s);
    memset(s->d_x, 0, sizeof s->d_x);
    memset(s->d_u, 0, sizeof s->d_u);
    memset(s->d_p, 0, sizeof s->d_p);
    for (k = 0; k < nk; ++k) {
        if (knowns[k] >= X && knowns[k] < D)
            s->d_x[knowns[k] - X] = seed[k];
        else if (knowns[k] >= U && knowns[k] < P)
            s->d_u[knowns[k] - U] = seed[k];
        else if (knowns[k] >= P && knowns[k] < Y)
            s->d_p[knowns[k] - P] = seed[k];
        else
            return refused(s);
    }
    result = @rates_tangent@;
    @tangents@
    status = told(s, result);
    if (status != OK)
        return status;
    for (k = 0; k < nu; ++k) {
        if (unknowns[k] >= X && unknowns[k] < D)
            sensitivity[k] = s->d_x[unknowns[k] - X];
        else if (unknowns[k] >= D && unknowns[k] < U)
            sensitivity[k] = dd[unknowns[k] - D];
        else if (unknowns[k] >= Y && unknowns[k] < END)
            sensitivity[k] = d_y[unknowns[k] - Y];
        else
            return refused(s);
    }
    return OK;
}

/* Model exchange */

Status fmi3SetTime(void *s, double t)
{
    ((Instance *)s)->t = t;
    return OK;
}

Status fmi3GetNumberOfContinuousStates(void *s, size_t *n) { (void)s; *n = N; return OK; }
Status fmi3GetNumberOfEventIndicators(void *s, size_t *n) { (void)s; *n = 0; return OK; }
Status fmi3GetEventIndicators(void *s, double z[], size_t n) { (void)z; return n ? refused(s) : OK; }

Status fmi3SetContinuousStates(void *s, const double x[], size_t n)
{
    if (n != N)
        return refused(s);
    memcpy(((Instance *)s)->x, x, sizeof(double) * N);
    return OK;
}

Status fmi3GetContinuousStates(void *s, double x[], size_t n)
{
    if (n != N)
        return refused(s);
    memcpy(x, ((Instance *)s)->x, sizeof(double) * N);
    return OK;
}

Status fmi3GetContinuousStateDerivatives(void *s, double d[], size_t n)
{
    return n == N ? told(s, rates(s, d)) : refused(s);
}

Status fmi3GetNominalsOfContinuousStates(void *s, double x[], size_t n)
{
    size_t k;
    (void)s;
    for (k = 0; k < n; ++k)
        x[k] = 1;
    return OK;
}

/* The state moved onto the constraints, and how far it moves beside its size; below that integrators need not begin anew. */
static const double FAR = 1e-8;

static int projected(Instance *s, double *x, double *far)
{
    int k, result;
    memcpy(x, s->x, sizeof s->x);
    result = @project@;
    *far = 0;
    for (k = 0; k < N; ++k) {
        const double off = fabs(x[k] - s->x[k]) / (1 + fabs(x[k]));
        *far = off > *far ? off : *far;
    }
    return result;
}

Status fmi3CompletedIntegratorStep(void *s, bool last, bool *event, bool *terminate)
{
    double x[N], far;
    const Status status = told(s, projected(s, x, &far));
    (void)last;
    *event = far > FAR;
    *terminate = false;
    return status;
}

/* Whether the state changes as it is moved. */
static Status moved(Instance *s, bool *changed)
{
    double x[N], far;
    const Status status = told(s, projected(s, x, &far));
    *changed = status == OK && far > 0;
    if (*changed)
        memcpy(s->x, x, sizeof x);
    return status;
}

/* The states, the time and the parameters that have been set need not fit together. */
Status fmi3ExitInitializationMode(void *s)
{
    bool changed;
    return moved(s, &changed);
}

Status fmi3UpdateDiscreteStates(void *s, bool *again, bool *terminate, bool *nominals, bool *changed, bool *planned, double *next)
{
    *again = *terminate = *nominals = *planned = false;
    *next = 0;
    return moved(s, changed);
}

/* Co-simulation: steps of the length of the stepper's, or shorter, that end where the communication step does */

Status fmi3DoStep(void *instance, double from, double length, bool last, bool *event, bool *terminate, bool *early, double *reached)
{
    Instance *s = instance;
    const double count = ceil(length / @capitals@_DT * (1 - 1e-12));
    const double h = length / (count < 1 ? 1 : count);
    double k;
    (void)last;
    *event = *terminate = *early = false;
    *reached = from;
    for (k = 0; k < count; ++k) {
        const double t = from + k * h;
        const Status status = told(s, @step@);
        if (status != OK)
            return status;
        s->t = *reached = t + h;
    }
    s->t = *reached = from + length;
    return OK;
}
