package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// loop is what both baselines share: one receiver and the calls for one message. Neither has lock renewal, quota,
// verdicts, a policy or a drain; they are the floor of what the same SDKs cost.
type loop struct {
	slots    int
	bus      *azservicebus.Client
	receiver *azservicebus.Receiver
	blobs    *azblob.Client
	account  string // URL of the storage account
	chat     openai.ChatCompletionService
}

// newLoop connects. A nil transport stands for each SDK's own.
func newLoop(transport *http.Transport) (*loop, error) {
	slots, err := strconv.Atoi(os.Getenv("MILLRACE_SLOTS"))
	if err != nil {
		return nil, fmt.Errorf("read slots: %w", err)
	}
	l := &loop{slots: slots}
	if l.bus, err = azservicebus.NewClientFromConnectionString(os.Getenv("SERVICEBUS_CONNECTION_STRING"), nil); err != nil {
		return nil, err
	}
	if l.receiver, err = l.bus.NewReceiverForQueue(os.Getenv("MILLRACE_QUEUE"), nil); err != nil {
		return nil, err
	}
	blobOptions := &azblob.ClientOptions{}
	chatOptions := []option.RequestOption{
		option.WithBaseURL(os.Getenv("BENCH_MODEL") + "/openai/v1/"), option.WithAPIKey(os.Getenv("BENCH_KEY")),
	}
	if transport != nil {
		client := &http.Client{Transport: transport}
		blobOptions.Transport = client
		chatOptions = append(chatOptions, option.WithHTTPClient(client))
	}
	if l.blobs, err = azblob.NewClientFromConnectionString(os.Getenv("AZURE_STORAGE_CONNECTION_STRING"), blobOptions); err != nil {
		return nil, err
	}
	l.account = strings.TrimSuffix(l.blobs.URL(), "/") + "/"
	l.chat = openai.NewChatCompletionService(chatOptions...)
	return l, nil
}

func (l *loop) close() error { return l.bus.Close(context.Background()) }

// runBare is the careful loop: one transport whose pool fits the slots, the worker's settings of the garbage collector,
// and no slot waits for another one.
func runBare(ctx context.Context) error {
	sizeHeap()
	slots, _ := strconv.Atoi(os.Getenv("MILLRACE_SLOTS"))
	l, err := newLoop(&http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: slots, IdleConnTimeout: 90 * time.Second,
	})
	if err != nil {
		return err
	}
	defer l.close()
	free := make(chan struct{}, l.slots)
	for range l.slots {
		free <- struct{}{}
	}
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-free:
		case <-ctx.Done():
			return nil
		}
		n := 1
		for more := true; more; {
			select {
			case <-free:
				n++
			default:
				more = false
			}
		}
		messages, err := l.receiver.ReceiveMessages(ctx, n, nil)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for range n - len(messages) {
			free <- struct{}{}
		}
		for _, m := range messages {
			working.Go(func() {
				defer func() { free <- struct{}{} }()
				l.work(m)
			})
		}
	}
}

// runFirst is the loop as one writes it first: the SDKs as they come, a batch of messages, a goroutine each.
func runFirst(ctx context.Context) error {
	l, err := newLoop(nil)
	if err != nil {
		return err
	}
	defer l.close()
	for {
		messages, err := l.receiver.ReceiveMessages(ctx, l.slots, nil)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var batch sync.WaitGroup
		for _, m := range messages {
			batch.Go(func() { l.work(m) })
		}
		batch.Wait()
	}
}

// work does one message and leaves it to the broker if that fails; the world finds every such message.
func (l *loop) work(m *azservicebus.ReceivedMessage) {
	ctx := context.Background()
	err := l.answer(ctx, m.Body)
	if err == nil {
		err = l.receiver.CompleteMessage(ctx, m, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

type claim struct {
	Tenant        string `json:"tenant"`
	Model         string `json:"model"`
	Blob          string `json:"blob"`
	CorrelationID string `json:"correlation_id"`
}

type result struct {
	claim
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
	Served  string `json:"model_version"`
	Input   int64  `json:"input_tokens"`
	Output  int64  `json:"output_tokens"`
}

// answer is the line from a claim to its result.
func (l *loop) answer(ctx context.Context, body []byte) error {
	var c claim
	if err := json.Unmarshal(body, &c); err != nil {
		return fmt.Errorf("decode claim: %w", err)
	}
	container, name, ok := strings.Cut(strings.TrimPrefix(c.Blob, l.account), "/")
	if !ok || !strings.HasPrefix(c.Blob, l.account) {
		return errors.New("the blob is in another account")
	}
	output := l.blobs.ServiceClient().NewContainerClient(outputs).NewBlockBlobClient(c.Tenant + "/" + c.CorrelationID + ".json")
	switch found, err := output.DownloadStream(ctx, nil); {
	case err == nil:
		return found.Body.Close()
	case !bloberror.HasCode(err, bloberror.BlobNotFound):
		return fmt.Errorf("look for result: %w", err)
	}

	input, err := l.blobs.DownloadStream(ctx, container, name, nil)
	if err != nil {
		return fmt.Errorf("get document: %w", err)
	}
	document, err := io.ReadAll(input.Body)
	input.Body.Close()
	if err != nil {
		return fmt.Errorf("read document: %w", err)
	}
	answer, err := l.chat.New(ctx, openai.ChatCompletionNewParams{
		Model: deployment, MaxCompletionTokens: openai.Int(maxOutput), Temperature: openai.Float(0),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(prompt), openai.UserMessage(string(document))},
	})
	if err != nil {
		return fmt.Errorf("call model: %w", err)
	}
	if len(answer.Choices) == 0 {
		return errors.New("call model: no choice")
	}
	encoded, err := json.Marshal(result{
		claim: c, Outcome: "succeeded", Text: answer.Choices[0].Message.Content, Served: answer.Model,
		Input: answer.Usage.PromptTokens, Output: answer.Usage.CompletionTokens,
	})
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	_, err = output.Upload(ctx, streaming.NopCloser(bytes.NewReader(encoded)), &blockblob.UploadOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}},
	})
	if bloberror.HasCode(err, bloberror.BlobAlreadyExists) {
		return nil
	}
	return err
}
